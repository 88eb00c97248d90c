// Transformations and field config by Grafana's code; the registries that its application fills are filled here.
import {
    applyFieldOverrides,
    cacheFieldDisplayNames,
    FieldConfigOptionsRegistry,
    identityOverrideProcessor,
    standardTransformers,
    standardTransformersRegistry,
    transformDataFrame,
} from "@grafana/data";
import { lastValueFrom } from "rxjs";

const OVER_TIME = [
    "drawStyle",
    "lineWidth",
    "fillOpacity",
    "showPoints",
    "pointSize",
    "spanNulls",
    "lineStyle",
    "stacking",
    "thresholdsStyle",
    "axisPlacement",
    "axisLabel",
    "axisGridShow",
    "axisSoftMax",
    "scaleDistribution",
    "hideFrom",
];
// What each kind's panel can be told of a field, by Grafana's schema, as far as the boards do.
const CUSTOM = {
    timeseries: OVER_TIME,
    barchart: ["lineWidth", "fillOpacity", "axisPlacement"],
    heatmap: ["hideFrom", "scaleDistribution"],
    table: ["align", "cellOptions", "inspect", "filterable", "minWidth"],
    stat: [],
    bargauge: [],
};
const STANDARD = [
    "displayName",
    "unit",
    "min",
    "max",
    "decimals",
    "thresholds",
    "mappings",
    "noValue",
    "color",
    "links",
];
const TRANSFORMERS = [
    standardTransformers.mergeTransformer,
    standardTransformers.organizeFieldsTransformer,
    standardTransformers.sortByTransformer,
];
standardTransformersRegistry.setInit(() =>
    TRANSFORMERS.map((found) => ({
        id: found.id,
        name: found.name,
        transformation: async () => found,
        editor: () => null,
    })),
);

export function transformed({ title, transformations = [] }, frames) {
    const unknown = transformations.find(({ id }) => !standardTransformersRegistry.getIfExists(id));
    if (unknown) throw new Error(`${title}: unknown transformation ${unknown.id}`);
    return lastValueFrom(transformDataFrame(transformations, frames));
}

/** The frames with all that the panel says of their fields: names, units, colours, display processors. */
export function configured(panel, frames, theme) {
    const registry = new FieldConfigOptionsRegistry(() => [
        ...STANDARD.map((id) => option(id, id, false)),
        ...CUSTOM[panel.type].map((id) => option(`custom.${id}`, id, true)),
    ]);
    const { defaults, overrides } = panel.fieldConfig;
    const told = [
        ...Object.keys(defaults).filter((id) => id !== "custom"),
        ...Object.keys(defaults.custom ?? {}).map((id) => `custom.${id}`),
        ...overrides.flatMap(({ properties }) => properties.map(({ id }) => id)),
    ];
    const unknown = told.filter((id) => !registry.getIfExists(id));
    if (unknown.length) throw new Error(`${panel.title}: a ${panel.type} knows nothing of ${unknown}`);
    const done = applyFieldOverrides({
        data: frames,
        fieldConfig: panel.fieldConfig,
        fieldConfigRegistry: registry,
        theme,
        timeZone: "browser",
        replaceVariables: (text) => text,
    });
    cacheFieldDisplayNames(done);
    return done;
}

function option(id, path, isCustom) {
    return {
        id,
        path,
        isCustom,
        name: id,
        process: identityOverrideProcessor,
        shouldApply: () => true,
        settings: {},
        override: () => null,
        editor: () => null,
    };
}
