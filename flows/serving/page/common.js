"use strict";
// Text of the collection enters the page only as text nodes, never as HTML.
const at = (id) => document.getElementById(id);

function element(tag, className, ...parts) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...parts);
  return node;
}

// Spans count characters. JavaScript strings count some characters twice.
function withMarks(text, spans) {
  const characters = Array.from(text);
  const parts = [];
  let done = 0;
  for (const [start, end] of spans) {
    parts.push(characters.slice(done, start).join(""), element("mark", "", characters.slice(start, end).join("")));
    done = end;
  }
  parts.push(characters.slice(done).join(""));
  return parts;
}

async function fetchJson(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. It may have ended.");
  }
  const content = await response.json().catch(() => ({ error: `The server's answer (${response.status}) is not readable.` }));
  if (!response.ok) throw new Error(content.error);
  return content;
}

const counted = (number, thing) => `${number} ${thing}${number === 1 ? "" : "s"}`;

