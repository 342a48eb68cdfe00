// node page_text.js PAGE.html: what the page's own script draws, as text. "|" ends a cell of a table, ";" begins an entry of a legend.
"use strict";
const page = require("fs").readFileSync(process.argv[2], "utf8");
const [, data] = page.match(/<script type="application\/json" id="data">(.*?)<\/script>/s);
const script = page.match(/<script>\n"use strict";(.*?)<\/script>/s)[1];

class Node {
  constructor(name) { Object.assign(this, {name, children: [], attributes: {}, clientWidth: 600}); }
  setAttribute(name, value) { this.attributes[name] = value; }
  append(...nodes) { this.children.push(...nodes); }
  replaceChildren(...nodes) { this.children = nodes; }
  matches(selector) { return selector === `${this.name}.${this.attributes.class}`; }
  get className() { return this.attributes.class; }
  get lastChild() { return this.children.at(-1); }
  getContext() {
    return {measureText: (text) => ({width: 6 * text.length}), putImageData() {},
      createImageData: (width, height) => ({data: new Uint8ClampedArray(4 * width * height)})};
  }
  get text() {
    if (this.name === "title") return "";
    const end = {i: "; ", div: "\n", td: "|", th: "|", h2: "\n", h3: "\n", p: "\n", tr: "\n", figcaption: "\n", br: "\n", li: "\n", text: "\n", canvas: "image\n"}[this.name] || "";
    return this.children.map((child) => child instanceof Node ? child.text : String(child)).join("") + end;
  }
}
const main = new Node("main");
const document = {
  createElement: (name) => new Node(name), createElementNS: (_, name) => new Node(name),
  getElementById: () => ({textContent: data}), querySelector: (name) => name === "main" ? main : new Node(name)};
new Function("document", "addEventListener", script)(document, () => {});
if (require.main === module) process.stdout.write(main.text);
module.exports = {main, page, Node};
