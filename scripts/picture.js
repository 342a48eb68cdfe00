// node scripts/picture.js PAGE.html TITLE >docs/pictures/NAME.svg: the chart with this title on the page of a report or bench.
"use strict";
const {main, page, Node} = require("../tests/e2e/page_text.js");
const escaped = (text) => String(text).replace(/[<&"]/g, (letter) => `&#${letter.codePointAt(0)};`);
const xml = (node) => node instanceof Node ? `<${node.name}${Object.entries(node.attributes).map(([name, value]) => ` ${name}="${escaped(value)}"`).join("")}>${
  node.children.map(xml).join("")}</${node.name}>` : escaped(node);
const all = (node) => node instanceof Node ? [node, ...node.children.flatMap(all)] : [];

const figure = all(main).find((node) => node.matches("figure.chart") && node.children[0].text.startsWith(process.argv[3]));
const title = escaped(figure.children[0].text.trim()), picture = all(figure).find((node) => node.name === "svg");
const [, , width, height] = picture.attributes.viewBox.split(" ").map(Number);
const style = [/:root\{.*?\}/s, /@media\(prefers-color-scheme.*?\}\}/s, /^\.ls .*$/gm].flatMap((part) => page.match(part)).join("");
let x = 4;
const legend = all(figure).filter((node) => node.name === "span").map(({children: [{attributes: mark}, name]}) => {
  const kind = mark.class ? "" : mark.style.includes("dashed") ? " d" : mark.style.includes("dotted") ? " o" : "";
  const drawn = `<path class="c${kind}" style="stroke:${mark.style.match(/var\(--\w+\)/)[0]}${mark.class ? ";stroke-width:9;stroke-linecap:butt" : ""}" d="M${x} 36h12"/><text x="${
    x + 18}" y="40">${escaped(name)}</text>`;
  x += 34 + 6.6 * name.length;
  return drawn;
}).join("");
process.stdout.write(`<svg xmlns="http://www.w3.org/2000/svg" class="ls" viewBox="-12 -48 ${width + 16} ${height + 48}" width="${width + 16}" height="${height + 48}" role="img" aria-label="${
  title}"><style>${style}svg{background:var(--paper)}</style><g transform="translate(0 -48)"><text x="4" y="18" style="font-weight:600;fill:var(--ink)">${title}</text>${
  legend}</g>${picture.children.map(xml).join("")}</svg>\n`);
