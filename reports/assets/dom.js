"use strict";

const byId = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// Parts of the page are stored as gzip in base64.
async function inflated(id) {
  const text = atob(byId(id).textContent);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

// As in numbers.py: three significant digits and a unit.
function significant(value) {
  if (!value) return "0";
  const decimals = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

function duration(ns) {
  const [scale, unit] = [[1e9, "s"], [1e6, "ms"], [0, "µs"]].find(([least]) => ns >= least);
  return `${significant(ns / (scale || 1e3))} ${unit}`;
}

function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < 0.1) return "< 0.1\u00a0%";
  return `${value > 0 && value < 9.95 ? value.toFixed(1) : value.toFixed(0)}\u00a0%`;
}
