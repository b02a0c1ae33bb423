"use strict";

const every = (query, root = document) => [...root.querySelectorAll(query)];
const byId = (id) => document.getElementById(id);

async function unpack(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

// Tables: filters above, sorting by the headings.

function addFilters(table) {
  const form = byId(`filters-${table.dataset.number}`);
  const status = byId(`shown-${table.dataset.number}`);
  const rows = [...table.tBodies[0].rows];
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => {
    const words = form.elements.find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const selected = every("select", form).filter((select) => select.value);
    for (const row of rows) {
      const text = [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
      row.hidden = !words.every((word) => text.includes(word))
        || selected.some(({ name, value }) => row.cells[name].textContent !== value);
    }
    const shown = rows.filter((row) => !row.hidden).length;
    status.textContent = shown === rows.length ? "" : `${shown} of ${rows.length} records`;
  });
}

function sortBy(table, column) {
  const headings = [...table.tHead.rows[0].cells];
  const down = headings[column].getAttribute("aria-sort") === "ascending";
  for (const heading of headings) heading.removeAttribute("aria-sort");
  headings[column].setAttribute("aria-sort", down ? "descending" : "ascending");
  const isNumber = headings[column].classList.contains("number");
  const keyed = [...table.tBodies[0].rows].map((row) => {
    const { dataset, textContent } = row.cells[column];
    return { row, key: isNumber ? parseFloat(dataset.value ?? textContent) : textContent };
  });
  const compare = isNumber ? (a, b) => a - b : (a, b) => a.localeCompare(b);
  const sign = down ? -1 : 1;
  // Cells without a number stay below.
  keyed.sort((a, b) => Number.isNaN(a.key) - Number.isNaN(b.key) || sign * compare(a.key, b.key) || 0);
  table.tBodies[0].append(...keyed.map(({ row }) => row));
}

// Charts: Vega draws those of the open tab.

const views = new Map();

async function draw(place, charts) {
  const chart = charts[place.dataset.chart];
  place.setAttribute("aria-label", chart.title);
  place.closest("figure").querySelector(".notes").textContent = chart.notes;
  place.style.minWidth = `${chart.minWidth}px`;
  views.get(place)?.finalize();
  const { view } = await vegaEmbed(place, chart.spec, { actions: false, renderer: "svg" });
  views.set(place, view);
  place.dataset.drawn = place.dataset.chart;
}

async function drawVisible(charts) {
  for (const place of every(".chart")) {
    if (place.offsetParent && !views.has(place)) await draw(place, charts);
  }
}

// Tabs: the keyboard pattern of the ARIA Authoring Practices Guide.

function addTabs(onOpen) {
  const tabs = every('[role="tab"]');
  const open = (tab) => {
    for (const other of tabs) {
      other.setAttribute("aria-selected", String(other === tab));
      other.tabIndex = other === tab ? 0 : -1;
      byId(other.getAttribute("aria-controls")).hidden = other !== tab;
    }
    onOpen();
  };
  tabs.forEach((tab, k) => {
    tab.addEventListener("click", () => open(tab));
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: k + 1, ArrowLeft: k - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      const next = tabs[(to + tabs.length) % tabs.length];
      open(next);
      next.focus();
    });
  });
  if (tabs.length) open(tabs[0]);
}

async function save(button) {
  const text = await unpack(`raw-${button.dataset.raw}`);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = `${button.dataset.name.replaceAll("/", "-")}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function start() {
  for (const table of every("table[data-number]")) {
    addFilters(table);
    every("thead button", table).forEach((button, column) => {
      button.addEventListener("click", () => sortBy(table, column));
    });
  }
  for (const button of every("button.more")) {
    button.addEventListener("click", () => {
      button.parentElement.querySelector("table").classList.remove("short");
      button.hidden = true;
    });
  }
  for (const button of every("button.raw")) button.addEventListener("click", () => save(button));
  const charts = JSON.parse(await unpack("charts"));
  for (const select of every("select.choose")) {
    select.addEventListener("change", () => {
      const place = select.closest("figure").querySelector(".chart");
      place.dataset.chart = select.value;
      draw(place, charts);
    });
  }
  addTabs(() => drawVisible(charts));
  document.body.dataset.ready = "yes";
  await drawVisible(charts);
}

start();
