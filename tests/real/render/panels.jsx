// The kinds of panels. Stat, bar gauge, time series and table are Grafana's own components, given what its panel plugins
// give them; heat map and bar chart exist only inside its application, so those two are drawn here, with its colours and
// texts.
import {
    FieldType,
    formattedValueToString,
    getDisplayProcessor,
    getDisplayValueAlignmentFactors,
    getFieldDisplayName,
    getFieldDisplayValues,
    getFieldSeriesColor,
} from "@grafana/data";
import { BarGauge, BigValue, TimeSeries, VizRepeater } from "@grafana/ui";
import { TableNG } from "@grafana/ui/unstable";
import { interpolateOranges } from "d3-scale-chromatic";

/** Each value by the panel's `reduceOptions`, in a box of its own. */
function Values({ panel, frames, theme, width, height, spacing, children, ...more }) {
    const { options, fieldConfig } = panel;
    const values = () =>
        getFieldDisplayValues({
            fieldConfig,
            reduceOptions: options.reduceOptions,
            replaceVariables: (text) => text,
            theme,
            data: frames,
            timeZone: "browser",
        });
    return (
        <VizRepeater
            {...{ width, height, ...more }}
            getValues={values}
            getAlignmentFactors={getDisplayValueAlignmentFactors}
            renderValue={children}
            source={frames}
            itemSpacing={spacing}
            orientation={options.orientation}
            renderCounter={0}
        />
    );
}

function Stat(props) {
    const { colorMode, graphMode, justifyMode, textMode, orientation } = props.panel.options;
    return (
        <Values {...props} spacing={3} autoGrid>
            {({ value, width, height, alignmentFactors, count }) => (
                <div data-value={value.display.title ?? ""}>
                    <BigValue
                        {...{ colorMode, graphMode, justifyMode, textMode, width, height, alignmentFactors, count }}
                        value={value.display}
                        theme={props.theme}
                        parentOrientation={orientation}
                    />
                </div>
            )}
        </Values>
    );
}

function Bars(props) {
    const { displayMode, showUnfilled, valueMode, minVizHeight, minVizWidth } = props.panel.options;
    return (
        <Values {...props} {...{ minVizHeight, minVizWidth }} spacing={10}>
            {({ value, width, height, orientation, alignmentFactors }) => (
                <div data-value={value.display.title ?? ""}>
                    <BarGauge
                        {...{ displayMode, showUnfilled, width, height, orientation, alignmentFactors }}
                        value={value.display}
                        field={value.field}
                        theme={props.theme}
                        itemSpacing={10}
                        valueDisplayMode={valueMode}
                        display={value.view.getFieldDisplayProcessor(value.colIndex)}
                    />
                </div>
            )}
        </Values>
    );
}

const numeric = (frame) => frame.fields.filter(({ type }) => type === FieldType.number);

/** What is not there or not a number leaves a gap in a line, as Grafana's panel prepares it. */
function gapped(frame) {
    const [time, value] = frame.fields;
    const known = new Map(time.values.map((at, place) => [at, value.values[place]]));
    const [first, last, pace] = [time.values[0], time.values.at(-1), time.config.interval];
    const times = Array.from({ length: Math.round((last - first) / pace) + 1 }, (_, place) => first + place * pace);
    const values = times.map((at) => (Number.isFinite(known.get(at)) ? known.get(at) : null));
    return {
        ...frame,
        length: times.length,
        fields: [
            { ...time, values: times },
            { ...value, values },
        ],
    };
}

function OverTime({ panel, frames, range, theme, width, height, keep }) {
    const gaps = frames.map((frame) => gapped(frame));
    return (
        <TimeSeries
            {...{ theme, width, height }}
            frames={gaps}
            legend={panel.options.legend}
            timeRange={range}
            timeZone="browser"
            structureRev={1}
        >
            {(config) => {
                keep({ config });
                config.addHook("draw", (plot) => keep({ plot }));
                return null;
            }}
        </TimeSeries>
    );
}

function Rows({ panel, frames: [frame], width, height }) {
    const { sortBy, cellHeight } = panel.options;
    return (
        <TableNG
            data={frame}
            {...{ width, height, sortBy, cellHeight }}
            noValue={panel.fieldConfig.defaults.noValue}
            fieldConfig={panel.fieldConfig}
        />
    );
}

const LEFT = 64,
    FOOT = 22,
    SCALE = 14;

function Heatmap({ panel, frames: [frame], range, theme, width, height }) {
    const { exponent, reverse } = panel.options.color;
    const [time, ...buckets] = frame.fields;
    const most = Math.max(...buckets.flatMap(({ values }) => values));
    // On a dark ground, Grafana turns its schemes round.
    const colour = (count) =>
        interpolateOranges(
            (theme.isDark !== reverse ? (part) => 1 - part : (part) => part)((count / most) ** exponent),
        );
    const said = (unit, value) =>
        formattedValueToString(
            getDisplayProcessor({ field: { type: FieldType.number, config: { unit } }, theme })(value),
        );
    const [wide, high] = [width - LEFT, height - FOOT - SCALE];
    const [begin, end] = [range.from.valueOf(), range.to.valueOf()];
    const across = (at) => LEFT + ((at - begin) / (end - begin)) * wide;
    const cell = {
        width: Math.max(1, (time.config.interval / (end - begin)) * wide - 1),
        height: high / buckets.length,
    };
    const every = Math.ceil(14 / cell.height);
    const cells = buckets.flatMap((bucket, row) =>
        bucket.values.map(
            (count, at) =>
                count > panel.options.filterValues.le && (
                    <rect
                        data-cell
                        key={`${row} ${at}`}
                        x={across(time.values[at]) - cell.width}
                        y={high - (row + 1) * cell.height}
                        {...cell}
                        fill={colour(count)}
                    />
                ),
        ),
    );
    const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => begin + part * (end - begin));
    return (
        <svg width={width} height={height} fontSize={11} fill={theme.colors.text.primary}>
            {cells}
            {buckets.map(
                ({ name }, row) =>
                    row % every === 0 && (
                        <text key={name} x={LEFT - 6} y={high - row * cell.height} textAnchor="end">
                            {name === "+Inf" ? name : said(panel.options.yAxis.unit, Number(name))}
                        </text>
                    ),
            )}
            {ticks.map((at) => (
                <text key={at} x={across(at)} y={high + 14} textAnchor={at === end ? "end" : "middle"}>
                    {time.display(at).text.slice(11, 19)}
                </text>
            ))}
            {Array.from({ length: 32 }, (_, part) => (
                <rect
                    key={part}
                    x={LEFT + part * 6}
                    y={height - 12}
                    width={6}
                    height={10}
                    fill={colour((most * (part + 1)) / 32)}
                />
            ))}
            <text x={LEFT - 6} y={height - 3} textAnchor="end">
                0
            </text>
            <text x={LEFT + 32 * 6 + 6} y={height - 3}>
                {said(panel.options.cellValues.unit, most)}
            </text>
        </svg>
    );
}

/** A group of bars for each row of the frame; a field whose axis is hidden goes by a scale of its own. */
function Groups({ panel, frames: [frame], theme, width, height }) {
    const { xField, stacking, orientation } = panel.options;
    const upright = orientation === "vertical",
        stacked = stacking === "normal";
    const [along, across] = upright ? ["height", "width"] : ["width", "height"];
    const name = frame.fields.find((field) => getFieldDisplayName(field, frame) === xField);
    const parts = numeric(frame);
    const apart = ({ config }) => config.custom.axisPlacement === "hidden";
    const most = (field) =>
        Math.max(
            ...name.values.map((_, at) =>
                parts
                    .filter((one) => (stacked ? true : apart(one) === apart(field)))
                    .map((one) => one.values[at] || 0)
                    .reduce((whole, part) => (stacked ? whole + part : Math.max(whole, part)), 0),
            ),
        );
    const bar = (field, at) => {
        const [title, text] = [
            getFieldDisplayName(field, frame),
            formattedValueToString(field.display(field.values[at])),
        ];
        // Room is left for the text behind the longest bar.
        const share = (0.8 * (field.values[at] || 0)) / most(field);
        const paint = {
            background: getFieldSeriesColor(field, theme).color,
            opacity: field.config.custom.fillOpacity / 100,
        };
        const label = (
            <span style={{ fontSize: upright ? 10 : 12, whiteSpace: "nowrap" }}>
                {stacked && share < 0.2 ? "" : text}
            </span>
        );
        return (
            <div
                key={title}
                data-bar={title}
                data-at={name.values[at]}
                data-text={text}
                style={{
                    display: "flex",
                    gap: 4,
                    flexDirection: upright ? "column-reverse" : "row",
                    alignItems: "center",
                    flex: stacked ? "none" : 1,
                    [along]: stacked ? `${100 * share}%` : "100%",
                }}
            >
                <div
                    style={{
                        ...paint,
                        [along]: stacked ? "100%" : `${100 * share}%`,
                        [across]: upright ? "100%" : 18,
                        flex: "none",
                    }}
                />
                {stacked ? <span style={{ marginLeft: "-95%" }}>{label}</span> : label}
            </div>
        );
    };
    const group = { flex: 1, minWidth: 0, display: "flex", alignItems: "center", textAlign: "center" };
    return (
        <div style={{ width, height, display: "flex", flexDirection: "column", fontSize: 12, overflow: "hidden" }}>
            <div style={{ flex: 1, minHeight: 0, display: "flex", flexDirection: upright ? "row" : "column", gap: 4 }}>
                {name.values.map((label, at) => (
                    <div key={label} style={{ ...group, flexDirection: upright ? "column-reverse" : "row", gap: 8 }}>
                        <span style={upright ? {} : { width: 150, flex: "none", textAlign: "right" }}>{label}</span>
                        <div
                            style={{
                                ...group,
                                alignItems: "stretch",
                                [along]: "100%",
                                flexDirection: upright || stacked ? "row" : "column",
                                gap: stacked ? 0 : 2,
                            }}
                        >
                            {parts.map((field) => bar(field, at))}
                        </div>
                    </div>
                ))}
            </div>
            <div style={{ display: "flex", gap: 16, paddingTop: 6 }}>
                {parts.map((field) => (
                    <span key={field.name}>
                        <i
                            style={{
                                display: "inline-block",
                                width: 14,
                                height: 4,
                                marginRight: 6,
                                background: getFieldSeriesColor(field, theme).color,
                            }}
                        />
                        {getFieldDisplayName(field, frame)}
                    </span>
                ))}
            </div>
        </div>
    );
}

export const KINDS = {
    stat: Stat,
    bargauge: Bars,
    timeseries: OverTime,
    table: Rows,
    heatmap: Heatmap,
    barchart: Groups,
};
