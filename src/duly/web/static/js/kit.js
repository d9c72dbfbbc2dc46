// What screens are made of, for those of apps too: `import { html, useLive, Title } from "../../js/kit.js"`.
export * from "./lib/ui.js";
export * from "./lib/json.js";
export * from "./lib/time.js";
export * from "./lib/router.js";
export { get, post, put, patch, remove, upload, address, me, may, root, ApiError } from "./lib/api.js";
export { useLive, forget } from "./lib/live.js";
export { useKeys } from "./lib/keys.js";
export { styles } from "./lib/styles.js";
export { eachOf } from "./lib/many.js";
export { clock, isLive, now } from "./lib/prefs.js";
export * from "./parts/marks.js";
export { say, act, ask, Dialog, Field } from "./parts/dialogs.js";
export { Json, Diff } from "./parts/json_view.js";
export { Chart, Spark } from "./parts/chart.js";
export { Table, Facts, Section, Tile } from "./parts/table.js";
export { Filters, Tabs } from "./parts/filters.js";
export { Grid } from "./parts/grid.js";
export { Title, service } from "./parts/shell.js";
