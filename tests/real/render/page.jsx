// A dashboard as Grafana's own code has it: queries → frames → transformations → field config → panels, on the grid of
// its JSON.
// Each panel is an element with `data-panel`; `window.shown` reads what it shows.
import { createTheme, dateTime, ThemeContext } from "@grafana/data";
import { initPluginTranslations } from "@grafana/i18n";
import { GlobalStyles, PanelChrome } from "@grafana/ui";
import { Component } from "react";
import { createRoot } from "react-dom/client";
import { flushSync } from "react-dom";

import { framesOf } from "./frames.js";
import { configured, transformed } from "./fields.js";
import { KINDS } from "./panels.jsx";
import { shown } from "./shown.js";

// Grafana's grid: 24 columns, rows of 30 pixels, 8 between them.
const COLUMNS = 24,
    ROW = 30,
    GAP = 8;
const theme = createTheme({ colors: { mode: "dark" } });
const drawn = {};
window.shown = shown(drawn, theme);

/**
 * Draws a dashboard in which variables are put in already, and gives its height. `choice` is what is said of them, times
 * are Unix seconds.
 */
window.draw = async ({ board, server, from, to, step, choice }) => {
    await initPluginTranslations("grafana-ui");
    const ready = await Promise.all(
        board.panels
            .filter(({ type }) => type !== "row")
            .map(async (panel) => {
                const asked = await framesOf(server, panel, from, to, step);
                const frames = configured(panel, await transformed(panel, asked.frames), theme);
                drawn[panel.id] = { frames, overrides: panel.fieldConfig.overrides };
                return [panel.id, { ...asked, frames }];
            }),
    );
    const answers = Object.fromEntries(ready);
    const range = (panel) => {
        const { from: first } = answers[panel.id];
        const times = { from: dateTime(first * 1000), to: dateTime(to * 1000) };
        return { ...times, raw: times };
    };
    const root = createRoot(document.getElementById("board"));
    flushSync(() => root.render(<Board {...{ board, answers, range, choice }} />));
    await document.fonts.ready;
    await window.settled();
    return document.documentElement.scrollHeight;
};

/** uPlot draws in microtasks, and legends take their place once they are measured. */
window.settled = async () => {
    for (let frame = 0; frame < 6; frame += 1) await new Promise((next) => requestAnimationFrame(next));
};

function Board({ board, answers, range, choice }) {
    const width = document.documentElement.clientWidth - 2 * GAP;
    const column = (width + GAP) / COLUMNS;
    const place = ({ x, y, w, h }) => ({
        position: "absolute",
        left: x * column,
        top: y * (ROW + GAP),
        width: w * column - GAP,
        height: h * (ROW + GAP) - GAP,
    });
    const height = Math.max(...board.panels.map(({ gridPos: { y, h } }) => (y + h) * (ROW + GAP)));
    return (
        <ThemeContext.Provider value={theme}>
            <GlobalStyles />
            <header
                style={{ display: "flex", gap: 16, alignItems: "baseline", padding: `${GAP * 1.5}px ${GAP * 2}px` }}
            >
                <strong style={{ fontSize: 18 }}>{board.title}</strong>
                <span>{board.description}</span>
                <span style={{ marginLeft: "auto", color: theme.colors.text.secondary }}>{choice}</span>
            </header>
            <div style={{ position: "relative", margin: GAP, marginTop: 0, height }}>
                {board.panels.map((panel) => (
                    <div key={panel.id} data-panel={panel.id} data-kind={panel.type} style={place(panel.gridPos)}>
                        {panel.type === "row" ? (
                            <h2 style={HEADING}>{panel.title}</h2>
                        ) : (
                            <Panel
                                panel={panel}
                                answer={answers[panel.id]}
                                range={range(panel)}
                                size={place(panel.gridPos)}
                            />
                        )}
                    </div>
                ))}
            </div>
        </ThemeContext.Provider>
    );
}

// These say themselves that there is nothing.
const SINGLE = ["stat", "bargauge"];
const HEADING = { margin: 0, paddingTop: 6, fontSize: 15, fontWeight: 500 };

function Panel({ panel, answer, range, size }) {
    const Kind = KINDS[panel.type];
    const override = panel.timeFrom && (
        <span style={{ color: theme.colors.text.secondary }}>Last {panel.timeFrom}</span>
    );
    return (
        <PanelChrome
            title={panel.title}
            description={panel.description}
            width={size.width}
            height={size.height}
            titleItems={override}
        >
            {(width, height) => (
                <Fence id={panel.id}>
                    {SINGLE.includes(panel.type) || answer.frames.some((frame) => frame.length) ? (
                        <Kind
                            {...{ panel, range, theme, width, height, frames: answer.frames }}
                            keep={(kept) => {
                                drawn[panel.id] = { ...drawn[panel.id], ...kept };
                            }}
                        />
                    ) : (
                        <Empty panel={panel} height={height} />
                    )}
                </Fence>
            )}
        </PanelChrome>
    );
}

/** As Grafana has it where a panel's queries give nothing. */
function Empty({ panel, height }) {
    const centre = { height, display: "grid", placeContent: "center", color: theme.colors.text.secondary };
    return (
        <div data-empty style={centre}>
            {panel.fieldConfig.defaults.noValue ?? "No data"}
        </div>
    );
}

/** Keeps a panel that throws from taking the others with it; the console has the error. */
class Fence extends Component {
    state = {};

    static getDerivedStateFromError(error) {
        return { error };
    }

    render() {
        return this.state.error ? <div data-failed>{String(this.state.error)}</div> : this.props.children;
    }
}
