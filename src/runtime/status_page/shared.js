"use strict";
// What both pages need. Names and messages come from the API server: they become text nodes and attributes, never markup.

const byId = (id) => document.getElementById(id);
const rounded = (value, most) => value.toLocaleString("en", { maximumFractionDigits: most });

function span(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 100) return `${seconds} s`;
  if (seconds < 6000) return `${Math.floor(seconds / 60)} min`;
  const hours = Math.floor(seconds / 3600);
  return hours < 48 ? `${hours} h ${Math.floor((seconds % 3600) / 60)} min` : `${Math.floor(hours / 24)} days`;
}

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null && child !== ""));
  return made;
}

// Builds anew only what has changed, so that a selection or a place in the page survives an answer.
function fill(element, content, build) {
  const key = JSON.stringify(content);
  if (element.shows === key) return;
  element.shows = key;
  element.replaceChildren(...build());
}
