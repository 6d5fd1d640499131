// What needs a server: search by image, neighbours, the merge tree, names, moves, export.
// Names come from people's disks: they are only ever set as text, never as markup.

const base = new URL(".", import.meta.url);
const byId = (id) => document.getElementById(id);

const make = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

const count = (number, one, many) =>
  `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

// ---- asking the site -------------------------------------------------------------------------

const notice = byId("notice");
const complain = (error) => {
  notice.textContent = error ? error.message || String(error) : "";
  notice.hidden = !error;
};

const asked = async (path, options) => {
  let reply;
  try {
    reply = await fetch(new URL(path, base), options);
  } catch {
    throw new Error("The site does not answer. Is deepcluster explore still running?");
  }
  if (reply.ok) return reply;
  const told = await reply.json().catch(() => ({}));
  throw new Error(told.error || `The site answered with ${reply.status}.`);
};
const get = async (path) => (await asked(path)).json();
const post = (path, content) => asked(path, { method: "POST", body: JSON.stringify(content) });

// Runs a piece of work; what goes wrong is said, once and in one place.
const attempt = (work) => async (...given) => {
  complain(null);
  try {
    return await work(...given);
  } catch (error) {
    complain(error);
    return undefined;
  }
};

// ---- the selection: kept while the tab is open, over all pages of the run ----------------------

const KEY = `selected ${base.pathname}`;
const selection = new Set(JSON.parse(sessionStorage.getItem(KEY) || "[]"));

const showSelection = () => {
  sessionStorage.setItem(KEY, JSON.stringify([...selection]));
  byId("selection").hidden = selection.size === 0;
  byId("selected").textContent = `${count(selection.size, "image", "images")} selected`;
  for (const tile of document.querySelectorAll(".tile[data-image]")) {
    const chosen = selection.has(Number(tile.dataset.image));
    tile.classList.toggle("chosen", chosen);
    const box = tile.querySelector(".pick input");
    if (box) box.checked = chosen;
  }
  if (selection.size) listTargets();
};

const choose = (image, chosen) => {
  if (chosen) selection.add(image);
  else selection.delete(image);
  showSelection();
};

// ---- tiles -------------------------------------------------------------------------------------

// A picture that can be opened and selected; one that the page had already becomes such a one too.
const alive = (tile) => {
  const image = Number(tile.dataset.image);
  const picture = tile.querySelector("img");
  const open = make("button", { type: "button", class: "look", "aria-label": `Look at ${picture.alt}` });
  picture.replaceWith(open);
  open.append(picture);
  open.addEventListener("click", () => inspect(image));
  const box = make("input", { type: "checkbox", "aria-label": `Select ${picture.alt}` });
  box.checked = selection.has(image);
  box.addEventListener("change", () => choose(image, box.checked));
  tile.append(make("label", { class: "pick" }, box));
  tile.classList.toggle("chosen", box.checked);
  return tile;
};

const plain = ({ image, name }) => {
  const picture = make("img", { alt: name, title: name, loading: "lazy", decoding: "async" });
  picture.src = new URL(`thumbnails/${image}.jpg`, base);
  return make("figure", { class: "tile", "data-image": image }, picture);
};

const tileOf = (told) => {
  const tile = plain(told);
  if (told.distance === undefined) {
    tile.append(make("figcaption", {}, told.name));
  } else {
    const far = make("span", { class: "far" }, told.distance.toFixed(2));
    tile.append(make("figcaption", {}, far, ` ${told.title}`));
  }
  return alive(tile);
};

const linkTo = (group, title) => {
  if (group < 0) return title;
  const link = make("a", {}, title);
  link.href = new URL(`groups/${group}.html`, base);
  return link;
};

// ---- one image and its neighbours ----------------------------------------------------------------

const inspector = byId("inspector");
let inspected = null;

const inspect = attempt(async (image) => {
  inspected = image;
  const told = await get(`api/images/${image}`);
  if (inspected !== image) return; // somebody clicked on
  byId("inspected").textContent = told.name;
  const large = byId("large");
  large.alt = told.name;
  large.src = new URL(`pictures/${image}.jpg`, base);
  const far = told.distance === null ? "" : `, ${told.distance.toFixed(2)} from its centre`;
  byId("belongs").replaceChildren("In ", linkTo(told.group, told.title), far, ".");
  byId("pick").checked = selection.has(image);
  byId("neighbours").replaceChildren(...told.neighbours.map(tileOf));
  if (!inspector.open) inspector.showModal();
  inspector.scrollTop = 0;
});

byId("close").addEventListener("click", () => inspector.close());
byId("pick").addEventListener("change", (event) => choose(inspected, event.target.checked));
inspector.addEventListener("click", (event) => {
  if (event.target === inspector) inspector.close(); // beside it
});

// ---- edits ---------------------------------------------------------------------------------------

const showEdits = ({ edits, last }) => {
  byId("edits").hidden = edits === 0;
  byId("last").textContent = `${count(edits, "edit", "edits")}, the last: ${last}.`;
};

let groupsAsked = null;
const allGroups = () => {
  groupsAsked ??= get("api/groups");
  return groupsAsked;
};

const listTargets = attempt(async () => {
  const target = byId("target");
  if (target.options.length) return;
  target.append(make("option", { value: "new" }, "a new group"));
  const { groups } = await allGroups();
  if (target.options.length > 1) return; // asked twice at once
  for (const { group, title, size } of groups) {
    target.append(make("option", { value: group }, `${title} (${size.toLocaleString("en")})`));
  }
});

const rename = attempt(async (input) => {
  const group = Number(input.dataset.group);
  const told = await (await post("api/name", { group, name: input.value })).json();
  input.value = input.value.trim().replace(/\s+/g, " ");
  const heading = input.closest(".card")?.querySelector("h3") || document.querySelector("h1");
  heading.textContent = told.title;
  showEdits(told);
});

const nameable = (input) => {
  input.addEventListener("change", () => rename(input));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") input.blur();
  });
};

// What the page shows has changed throughout; if its group is gone, the first page remains.
const startAgain = async () => {
  const here = await fetch(location.href, { method: "GET" });
  if (here.ok) location.reload();
  else location.assign(base);
};

byId("move").addEventListener(
  "click",
  attempt(async () => {
    const chosen = byId("target").value;
    const group = chosen === "new" ? null : Number(chosen);
    await post("api/move", { images: [...selection], group });
    selection.clear();
    showSelection();
    await startAgain();
  }),
);
byId("clear").addEventListener("click", () => {
  selection.clear();
  showSelection();
});
byId("undo").addEventListener(
  "click",
  attempt(async () => {
    await post("api/undo", {});
    await startAgain();
  }),
);
byId("export").addEventListener(
  "click",
  attempt(async () => {
    const table = await (await post("export.csv", { images: [...selection] })).blob();
    const link = make("a", { download: "selection.csv" });
    link.href = URL.createObjectURL(table);
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }),
);

// ---- the page of a group ---------------------------------------------------------------------------

for (const tile of document.querySelectorAll(".wall .tile[data-image], .pairs > div .tile[data-image]")) {
  alive(tile);
}
if (byId("name")) nameable(byId("name"));

const more = byId("more");
more?.addEventListener(
  "click",
  attempt(async () => {
    const { group, start } = more.dataset;
    const told = await get(`api/groups/${group}?start=${start}`);
    const wall = byId("members");
    const there = new Set([...wall.children].map((tile) => Number(tile.dataset.image)));
    wall.append(...told.images.filter(({ image }) => !there.has(image)).map(tileOf));
    more.dataset.start = told.start + told.images.length;
    more.hidden = told.start + told.images.length >= told.size;
  }),
);

// ---- the cards of the first page -------------------------------------------------------------------

for (const card of document.querySelectorAll("#cards .card")) {
  const [, name] = card.querySelector("h3").textContent.split(/: (.*)/s);
  const input = make("input", {
    type: "text",
    maxlength: 80,
    autocomplete: "off",
    placeholder: "name this group",
    "aria-label": `Name of group ${card.dataset.number}`,
    "data-group": card.dataset.number,
  });
  input.value = name || "";
  nameable(input);
  card.append(make("div", { class: "naming" }, input));
}

// ---- search by name: of all images, where a page from disk has some names only ---------------------

const findNames = attempt(async (wanted) => {
  const told = await get(`api/names?part=${encodeURIComponent(wanted)}`);
  return { ...told, groups: new Set(told.groups) };
});
window.deepcluster = window.deepcluster || {};
window.deepcluster.find = async (wanted) =>
  (await findNames(wanted)) || { count: 0, groups: new Set(), lines: [] };

// ---- search by image -------------------------------------------------------------------------------

const LARGEST = 20 * 2 ** 20;
let preview = null;

const search = attempt(async (file) => {
  if (file.size > LARGEST) throw new Error("That file is larger than 20 MB.");
  const answer = byId("answer");
  if (preview) URL.revokeObjectURL(preview);
  preview = URL.createObjectURL(file);
  byId("query").src = preview;
  byId("query").alt = `The picture that is searched by: ${file.name}`;
  byId("verdict").textContent = "Looking …";
  byId("like").replaceChildren();
  answer.hidden = false;
  answer.classList.add("waiting");
  byId("find").scrollIntoView({ block: "start" });
  try {
    const told = await (await asked("api/search", { method: "POST", body: file })).json();
    const group = told.there ? linkTo(told.group, told.title) : told.title;
    const far = `${told.distance.toFixed(2)} from its ${told.centred ? "centre" : "nearest image"}`;
    const next = told.margin === null ? "" : `; the next group is ${told.margin.toFixed(2)} farther`;
    byId("verdict").replaceChildren(
      ...(told.none
        ? ["Like none of the groups: even ", group, ` is ${far}, farther than nearly all of its images.`]
        : ["It belongs to ", group, ` (${far}${next}).`]),
    );
    byId("like").replaceChildren(...told.neighbours.map(tileOf));
  } catch (error) {
    byId("verdict").textContent = error.message;
  } finally {
    answer.classList.remove("waiting");
  }
});

if (byId("find")) {
  const file = byId("file");
  file.addEventListener("change", () => {
    if (file.files.length) search(file.files[0]);
    file.value = "";
  });
  const holdsFile = (event) => [...(event.dataTransfer?.types || [])].includes("Files");
  document.addEventListener("dragover", (event) => {
    if (!holdsFile(event)) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dropping");
  });
  document.addEventListener("drop", (event) => {
    document.body.classList.remove("dropping");
    if (!holdsFile(event)) return;
    event.preventDefault();
    if (event.dataTransfer.files.length) search(event.dataTransfer.files[0]);
  });
  document.addEventListener("paste", (event) => {
    const pasted = [...(event.clipboardData?.files || [])];
    if (pasted.length) search(pasted[0]);
  });
}

// ---- fewer groups ----------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";
const draw = (tag, attributes) => {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
};

const WIDTH = 1000;
const HEIGHT = 170;

// The tree, and a function that shows where a number of groups cuts it.
const drawTree = (place, { groups, ends, steps }) => {
  const side = Math.min(44, WIDTH / ends.length - 2);
  const svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT + side + 8}`, role: "img" });
  svg.setAttribute("aria-label", `How ${groups} groups come together, step by step`);
  const highest = Math.sqrt(steps.length ? steps[steps.length - 1][2] : 1) || 1;
  const up = (cost) => HEIGHT - 4 - (HEIGHT - 14) * (Math.sqrt(cost) / highest);
  const nodes = ends.map((end, number) => ({ x: ((number + 0.5) * WIDTH) / ends.length, y: HEIGHT }));
  const paths = steps.map(([one, other, cost]) => {
    const [a, b] = [nodes[one], nodes[other]];
    const y = up(cost);
    nodes.push({ x: (a.x + b.x) / 2, y });
    const path = draw("path", { d: `M${a.x},${a.y}V${y}H${b.x}V${b.y}` });
    svg.append(path);
    return path;
  });
  ends.forEach((end, number) => {
    const picture = draw("image", { x: nodes[number].x - side / 2, y: HEIGHT + 4, width: side, height: side });
    picture.setAttribute("href", new URL(`thumbnails/${end.images[0].image}.jpg`, base));
    picture.setAttribute("preserveAspectRatio", "xMidYMid slice");
    const title = draw("title", {});
    const others = end.groups.length > 1 ? ` and ${end.groups.length - 1} more` : "";
    title.textContent = `${end.titles[0]}${others}, ${count(end.size, "image", "images")}`;
    picture.append(title);
    svg.append(picture);
  });
  const line = draw("line", { x1: 0, x2: WIDTH });
  svg.append(line);
  place.replaceChildren(svg);
  return (wanted) => {
    const made = Math.max(0, Math.min(steps.length, ends.length - wanted));
    paths.forEach((path, number) => path.classList.toggle("together", number < made));
    const below = made ? up(steps[made - 1][2]) : HEIGHT;
    const above = made < steps.length ? up(steps[made][2]) : 2;
    line.setAttribute("y1", (below + above) / 2);
    line.setAttribute("y2", (below + above) / 2);
  };
};

const mergedCard = (card) => {
  const several = card.groups.length > 1;
  const title = several ? `${card.groups.length} groups together` : "";
  const heading = make("h3", {});
  if (several) heading.textContent = title;
  else heading.append(linkTo(card.groups[0], card.titles[0]));
  const figures = make("p", { class: "figures" });
  figures.append(make("span", {}, make("b", {}, card.size.toLocaleString("en")), " images"));
  const body = make("div", { class: "merged-body" }, heading, figures);
  if (several) {
    const of = make("p", { class: "of" });
    card.titles.forEach((name, number) => {
      of.append(number ? ", " : "", linkTo(card.groups[number], name));
    });
    const rest = card.groups.length - card.titles.length;
    if (rest > 0) of.append(` and ${rest.toLocaleString("en")} more`);
    body.append(of);
  }
  body.append(make("div", { class: "sheet" }, ...card.images.map(plain)));
  if (several) {
    const join = make("button", { type: "button" }, "Make these one group");
    join.addEventListener(
      "click",
      attempt(async () => {
        await post("api/merge", { groups: card.groups });
        await startAgain();
      }),
    );
    body.append(join);
  }
  return make("li", { class: "card" }, body);
};

const slider = byId("count");
if (slider) {
  const list = byId("merged");
  const moreMerged = byId("more-merged");
  let showCut = () => {};
  let wanted = null;

  const show = attempt(async (start = 0) => {
    const number = Number(slider.value);
    wanted = number;
    const told = await get(`api/cut?count=${number}&start=${start}`);
    if (wanted !== number) return; // somebody moved on
    const cards = told.cards.map(mergedCard);
    if (start) list.append(...cards);
    else list.replaceChildren(...cards);
    moreMerged.hidden = list.children.length >= number;
    const kept = `${Math.round(100 * told.kept)}%`;
    byId("count-words").textContent =
      `${count(number, "group", "groups")}. ${kept} of what makes images differ lies between them, ` +
      "the rest within.";
  });

  const moved = () => {
    const number = Number(slider.value);
    byId("count-number").textContent = number;
    slider.setAttribute("aria-valuetext", count(number, "group", "groups"));
    const link = new URL("export.csv", base);
    link.searchParams.set("count", number);
    byId("export-cut").href = link;
    showCut(number);
  };

  let later = null;
  slider.addEventListener("input", () => {
    moved();
    clearTimeout(later);
    later = setTimeout(() => show(), 120);
  });
  moreMerged.addEventListener("click", () => show(list.children.length));

  // Work for the site, so only when somebody comes near.
  const begin = attempt(async () => {
    showCut = drawTree(byId("tree"), await get("api/tree"));
    moved();
    await show();
  });
  const watcher = new IntersectionObserver(
    (seen) => {
      if (!seen.some((entry) => entry.isIntersecting)) return;
      watcher.disconnect();
      begin();
    },
    { rootMargin: "600px" },
  );
  watcher.observe(byId("merge"));
  moved();
}

// ---- at the beginning ------------------------------------------------------------------------------

showSelection();
attempt(async () => showEdits(await allGroups()))();
