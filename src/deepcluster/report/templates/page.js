// Sorting, searching and the epoch slider. Without this file the page still shows everything.
// Names come from people's disks: they are only ever set as text, never as markup.
"use strict";

const data = window.deepcluster || {};
const byId = (id) => document.getElementById(id);

const make = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

// ---- the cards -------------------------------------------------------------------------------

const cards = byId("cards");
const controls = document.querySelector(".controls");

const orders = {
  size: (a, b) => b.size - a.size,
  small: (a, b) => a.size - b.size,
  tight: (a, b) => b.tightness - a.tightness,
  loose: (a, b) => a.tightness - b.tightness,
  folder: (a, b) => b.folder - a.folder,
  outliers: (a, b) => b.outliers - a.outliers,
  duplicates: (a, b) => b.duplicates - a.duplicates,
  number: (a, b) => a.number - b.number,
};

const sortCards = (order) => {
  const figures = (card) =>
    Object.fromEntries(Object.entries(card.dataset).map(([key, value]) => [key, Number(value)]));
  const sorted = [...cards.children]
    .map((card) => ({ card, ...figures(card) }))
    .sort((a, b) => orders[order](a, b) || a.number - b.number);
  cards.append(...sorted.map((entry) => entry.card));
};

let namesAsked = null;
const askNames = () => {
  // Megabytes for a large run, so only when somebody searches.
  namesAsked ??= new Promise((resolve) => {
    const script = make("script", { src: "data/names.js" });
    script.addEventListener("load", () => resolve(window.deepcluster.names));
    script.addEventListener("error", () => resolve([]));
    document.head.append(script);
  });
  return namesAsked;
};

const MOST_MATCHES = 100;

// The names that this page has. A site, which has them all, puts its own way in the place of this.
const findHere = async (wanted) => {
  const found = { count: 0, groups: new Set(), lines: [] };
  for (const [group, , members] of await askNames()) {
    for (const name of members) {
      if (!name.toLowerCase().includes(wanted)) continue;
      found.count += 1;
      found.groups.add(group);
      if (found.lines.length < MOST_MATCHES) found.lines.push([name, group]);
    }
  }
  return found;
};

const plural = (count, one, many) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

const search = async (words) => {
  const wanted = words.trim().toLowerCase();
  const list = byId("matches");
  if (!wanted) {
    for (const card of cards.children) card.hidden = false;
    list.hidden = true;
    byId("found").textContent = "";
    return;
  }
  const { count, groups, lines } = await (data.find || findHere)(wanted);
  if (byId("search").value !== words) return; // somebody typed on
  for (const card of cards.children) card.hidden = !groups.has(Number(card.dataset.number));
  list.replaceChildren(
    ...lines.map(([name, group]) => {
      const where = group < 0 ? "no group" : make("a", { href: `groups/${group}.html` }, `group ${group}`);
      return make("li", {}, name, " · ", where);
    }),
  );
  list.hidden = lines.length === 0;
  const more = count > lines.length ? `, the first ${lines.length} listed` : "";
  byId("found").textContent =
    `${plural(count, "name", "names")} in ${plural(groups.size, "group", "groups")}${more}`;
};

if (controls) {
  controls.hidden = false;
  byId("sort").addEventListener("change", (event) => sortCards(event.target.value));
  byId("search").addEventListener("input", (event) => search(event.target.value));
}

// ---- the history -----------------------------------------------------------------------------

const picture = (number) => {
  const name = data.changes.names[number] || "";
  const image = make("img", { src: `thumbnails/${number}.jpg`, alt: name, title: name });
  return make("figure", { class: "tile" }, image);
};

const events = (title, sign, examples) =>
  examples
    .filter((parts) => parts.every((part) => part.length))
    .map((parts) => {
      const row = make("div", { class: "event" }, make("b", {}, title));
      parts.forEach((part, place) => {
        if (place) row.append(make("span", { "aria-hidden": "true" }, sign));
        row.append(make("div", { class: "part" }, ...part.map(picture)));
      });
      return row;
    });

const showEpoch = (place) => {
  const step = data.changes.steps[place];
  const ended = step.epoch === "end";
  byId("epoch-number").textContent = step.epoch;
  byId("epoch").setAttribute("aria-valuetext", ended ? "the end" : `epoch ${step.epoch}`);
  const mean = step.whole.reduce((sum, share) => sum + share, 0) / Math.max(1, step.whole.length);
  const share = `${Math.round(100 * mean)}%`;
  const together = ended
    ? "This is how the groups are now."
    : `Of each of today's groups, ${share} was together then, on average.`;
  byId("epoch-words").textContent =
    step.groups === undefined
      ? `The first grouping. ${together}`
      : `${step.groups} groups. Since the step before, ${step.stayed} stayed as they were, ` +
        `${step.split} split, and ${step.merged} came together from several. ${together}`;
  [...byId("whole").children].forEach((bar, number) => {
    bar.style.height = `${100 * step.whole[number]}%`;
  });
  byId("events").replaceChildren(
    ...events("Split into", "│", step.splits || []),
    ...events("Merged from", "+", step.mergers || []),
  );
};

if (byId("history") && data.changes) {
  byId("history").hidden = false;
  const bars = data.changes.groups.map((group) => make("span", { title: `group ${group}` }));
  byId("whole").replaceChildren(...bars);
  const slider = byId("epoch");
  slider.addEventListener("input", () => showEpoch(Number(slider.value)));
  showEpoch(Number(slider.value));
}
