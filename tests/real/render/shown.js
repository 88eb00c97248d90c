import { fieldMatchers } from "@grafana/data";

// What the page shows, read from its elements and canvases: for the proof, which knows nothing of how it came about.
const panel = (id) => document.querySelector(`[data-panel="${id}"]`);
const leaves = (element) =>
    [...element.querySelectorAll("*")].filter((one) => !one.children.length && one.textContent && !one.closest("svg"));
const ground = document.createElement("i");

function css(colour) {
    document.body.append(ground);
    ground.style.color = colour;
    return getComputedStyle(ground).color;
}

/** Text and colour of what is in an element, or in what is left of it without its title. */
function read(element, title) {
    const all = element.children.length ? leaves(element) : [element];
    const texts = all[0]?.textContent === title ? all.slice(1) : all;
    const text = texts
        .map((leaf) => leaf.textContent)
        .join("")
        .replace(/\u00a0/g, " ")
        .trim();
    return { text, colour: texts.length ? getComputedStyle(texts[0]).color : null };
}

/** `drawn`: panel → what its component was given; `theme`: Grafana's. */
export function shown(drawn, theme) {
    return {
        colour: (name) => css(theme.visualization.getColorByName(name)),
        values: (id) =>
            [...panel(id).querySelectorAll("[data-value]")].map((element) => ({
                title: element.dataset.value,
                ...read(element, element.dataset.value),
            })),
        cells: (id) => ({
            heads: [...panel(id).querySelectorAll("[role=columnheader]")].map((head) => head.innerText.trim()),
            rows: [...panel(id).querySelectorAll("[role=row]")]
                .map((row) => [...row.querySelectorAll("[role=gridcell]")].map((cell) => read(cell)))
                .filter((row) => row.length),
        }),
        bars: (id) =>
            [...panel(id).querySelectorAll("[data-bar]")].map(({ dataset: { at, bar, text } }) => ({
                at,
                field: bar,
                text,
            })),
        /** How many fields each override is for. */
        overrides: (id) =>
            drawn[id].overrides.map(({ matcher: { id: kind, options } }) => {
                const matches = fieldMatchers.get(kind).get(options);
                return drawn[id].frames.flatMap((frame) =>
                    frame.fields.filter((field) => matches(field, frame, drawn[id].frames)),
                ).length;
            }),
        plot: (id) => plot(panel(id), drawn[id], theme),
    };
}

function plot(element, { config, plot: chart }, theme) {
    const { canvas, left, top, width, height } = { canvas: chart.ctx.canvas, ...chart.bbox };
    const { data } = chart.ctx.getImageData(0, 0, canvas.width, canvas.height);
    let pixels = 0;
    for (let at = 3; at < data.length; at += 4) pixels += data[at] > 0;
    /** How much of a row has this colour, whatever shines through. */
    const share = (row, colour) => {
        const want = /\d+, \d+, \d+/
            .exec(css(theme.visualization.getColorByName(colour)))[0]
            .split(", ")
            .map(Number);
        let found = 0;
        for (let column = Math.round(left); column < left + width; column += 1) {
            const at = 4 * (row * canvas.width + column);
            found += want.every((part, offset) => Math.abs(data[at + offset] - part) < 16);
        }
        return found / width;
    };
    const lines = Object.values(config.thresholds).flatMap(({ scaleKey, thresholds: { steps } }) =>
        steps.slice(1).map(({ value, color }) => {
            const row = Math.round(chart.valToPos(value, scaleKey, true));
            const inside = row > top && row < top + height;
            return { value, inside, share: inside ? Math.max(share(row, color), share(row - 1, color)) : 0 };
        }),
    );
    return {
        series: config.getSeries().length,
        legend: element.querySelectorAll("[data-testid^='data-testid VizLegend series']").length,
        pixels,
        lines,
    };
}
