export { default } from "./audit.js";
