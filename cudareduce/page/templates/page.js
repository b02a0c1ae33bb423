"use strict";
// Unpacks what the page holds, then tables, charts, tabs and lessons. Nothing is fetched.

const FIRST_ROWS = 200;
const NARROW = 620;
const LONG = 48;
const every = (query, root = document) => [...root.querySelectorAll(query)];
const byId = (id) => document.getElementById(id);

function made(tag, words = "", kind = "") {
  const element = document.createElement(tag);
  element.textContent = words;
  if (kind) element.className = kind;
  return element;
}

// A name; where there is little room it breaks where its words end.
function named(element, name) {
  if (innerWidth >= NARROW) element.append(name);
  else for (const word of name.split(/(?<=[_:])/)) element.append(word, made("wbr"));
}

async function unpacked(id) {
  const letters = atob(byId(id).textContent);
  const bytes = new Uint8Array(letters.length);
  for (let k = 0; k < letters.length; k++) bytes[k] = letters.charCodeAt(k);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

// Tables: filtered by words and by columns with few values, sorted by a heading.

class Records {
  constructor(element, table, lessons) {
    this.element = element;
    this.table = table;
    this.lessons = lessons;
    this.number = element.dataset.table;
    this.sorted = { column: -1, down: false };
    this.all = false;
    this.form = document.querySelector(`form[data-table="${this.number}"]`);
    this.addFilters();
    this.addHeader();
    this.body = element.appendChild(made("tbody"));
    this.form.addEventListener("input", () => this.show());
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.more = document.querySelector(`button.more[data-table="${this.number}"]`);
    this.more.addEventListener("click", () => { this.all = true; this.show(); });
    this.show();
  }

  addFilters() {
    for (const column of ["what", "n", "verdict"]) {
      const k = this.table.header.indexOf(column);
      const values = [...new Map(this.table.rows.map((row) => [row[k][0], row[k][1]]))];
      if (values.length < 2) continue;
      if (values.every(([, order]) => order !== null)) values.sort((a, b) => a[1] - b[1]);
      const label = made("label", `${column} `);
      const select = label.appendChild(made("select"));
      select.name = String(k);
      select.append(new Option("all", ""), ...values.map(([text]) => new Option(text, text)));
      this.form.append(label);
    }
  }

  addHeader() {
    const row = this.element.appendChild(made("thead")).appendChild(made("tr"));
    this.table.header.forEach((name, k) => {
      const cell = made("th", "", this.isNumber(k) ? "number" : "");
      cell.scope = "col";
      const button = cell.appendChild(made("button", name));
      button.type = "button";
      button.addEventListener("click", () => this.sortBy(k));
      row.append(cell);
    });
  }

  isNumber(column) {
    return column >= this.table.numbers && column < this.table.header.length - 1;
  }

  sortBy(column) {
    const down = this.sorted.column === column ? !this.sorted.down : false;
    this.sorted = { column, down };
    every("th", this.element).forEach((cell, k) => {
      if (k === column) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    this.show();
  }

  rows() {
    const find = this.form.elements.find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = every("select", this.form).filter((one) => one.value);
    const { column, down } = this.sorted;
    const kept = this.table.rows.filter((row) => {
      const words = row.map((cell) => cell[0]).join(" ").toLowerCase();
      return find.every((word) => words.includes(word))
        && wanted.every((one) => row[one.name][0] === one.value);
    });
    if (column < 0) return kept;
    const sign = down ? -1 : 1;
    const numbers = this.isNumber(column);
    return kept.sort((a, b) => {
      const [x, y] = [a[column], b[column]];
      if (!numbers) return sign * x[0].localeCompare(y[0]);
      if (x[1] === null || y[1] === null) return (x[1] === null) - (y[1] === null);
      return sign * (x[1] - y[1]);
    });
  }

  show() {
    const rows = this.rows();
    const shown = this.all ? rows : rows.slice(0, FIRST_ROWS);
    this.body.replaceChildren(...shown.map((row) => this.row(row)));
    this.more.hidden = shown.length === rows.length;
    this.more.textContent = `Show all ${rows.length} rows`;
    const total = this.table.rows.length;
    byId(`shown-${this.number}`).textContent = rows.length === total ? "" : `${rows.length} of ${total} records`;
  }

  row(cells) {
    const row = made("tr", "", cells.some((cell) => cell[0] === "WRONG") ? "wrong" : "");
    cells.forEach(([text], k) => {
      const cell = made("td", "", k === cells.length - 1 ? "why" : this.isNumber(k) ? "number" : "");
      const lesson = k === 0 && this.lessonOf(text);
      if (lesson) {
        const button = cell.appendChild(made("button", "", "lesson"));
        button.type = "button";
        button.dataset.lesson = lesson;
        named(button, text);
      } else if (k === 0) {
        named(cell, text);
        if (text.length > LONG) cell.className = "long";
      } else {
        cell.textContent = text;
      }
      row.append(cell);
    });
    return row;
  }

  lessonOf(name) {
    if (Object.hasOwn(this.lessons, name)) return name;
    return Object.hasOwn(this.table.published, name) && this.table.published[name];
  }
}

// Charts: those of the open tab are drawn. Their colours are names of the style, so that a theme
// or a printer needs nothing drawn anew.

const STYLE = {
  font: "system-ui, 'DejaVu Sans', sans-serif",
  background: null,
  view: { stroke: null },
  text: { color: "var(--text)" },
  axis: {
    labelColor: "var(--text)", titleColor: "var(--quiet)", gridColor: "var(--grid)",
    domainColor: "var(--quiet)", tickColor: "var(--quiet)", titleFontWeight: "normal", labelFontSize: 11,
  },
  legend: { labelColor: "var(--text)" },
};

class Charts {
  constructor(charts) {
    this.charts = charts;
    this.drawn = new Map();
    for (const select of every("select.choose")) select.addEventListener("change", () => this.choose(select));
    this.narrow = innerWidth < NARROW;
    addEventListener("resize", () => {
      if (this.narrow === innerWidth < NARROW) return;
      this.narrow = !this.narrow;
      this.drawn.clear();
      this.drawOpen();
    });
  }

  choose(select) {
    const figure = select.closest("figure");
    const place = figure.querySelector(".chart");
    const chart = this.charts[Number(select.value)];
    place.dataset.chart = select.value;
    place.setAttribute("aria-label", chart.title);
    figure.querySelector(".notes").textContent = chart.notes.join("; ");
    this.draw(place);
  }

  async drawOpen() {
    for (const place of every(".chart")) {
      if (place.offsetParent && !this.drawn.has(place)) await this.draw(place);
    }
  }

  async draw(place) {
    this.drawn.get(place)?.finalize();
    const { spec } = this.charts[Number(place.dataset.chart)];
    const layer = spec.layer.filter((one) => !this.narrow || one.name !== "briefs");
    const { least } = spec.usermeta;
    const width = least > place.clientWidth ? least : "container";
    const shown = { ...spec, layer, width, config: STYLE };
    const { view } = await vegaEmbed(place, shown, { actions: false, renderer: "svg" });
    this.drawn.set(place, view);
    place.dataset.drawn = place.dataset.chart;
    // What is wider than its place is moved by keys, too.
    if (place.scrollWidth > place.clientWidth) place.tabIndex = 0;
    else place.removeAttribute("tabindex");
  }
}

// Tabs, as arrow keys move through them.

function addTabs(opened) {
  const tabs = every('[role="tab"]');
  const open = (tab) => {
    for (const one of tabs) {
      one.setAttribute("aria-selected", String(one === tab));
      one.tabIndex = one === tab ? 0 : -1;
      byId(one.getAttribute("aria-controls")).hidden = one !== tab;
    }
    opened();
  };
  tabs.forEach((tab, k) => {
    tab.addEventListener("click", () => open(tab));
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: k + 1, ArrowLeft: k - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (to === undefined) return;
      const next = tabs[(to + tabs.length) % tabs.length];
      event.preventDefault();
      open(next);
      next.focus();
    });
  });
  if (tabs.length) open(tabs[0]);
}

// Lessons: what a kernel changes and why, its diff and its source.

function code(text) {
  const block = made("pre", text);
  block.tabIndex = 0;
  return block;
}

function coloured(diff) {
  const block = code("");
  for (const line of diff.split("\n")) {
    const kind = line.startsWith("+") ? "added" : line.startsWith("-") ? "gone" : "";
    block.append(made("span", `${line}\n`, kind));
  }
  return block;
}

function part(title, content, open) {
  const details = made("details");
  details.open = open;
  details.append(made("summary", title), content);
  return details;
}

function addLessons(lessons) {
  const dialog = byId("lesson");
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-lesson]");
    if (!button) return;
    const lesson = lessons[button.dataset.lesson];
    byId("lesson-title").textContent = lesson.id;
    const body = byId("lesson-body");
    body.replaceChildren(made("p", lesson.title, "aside"));
    for (const words of [lesson.change, lesson.expect, lesson.words]) if (words) body.append(made("p", words));
    if (lesson.techniques) body.append(made("p", `Techniques: ${lesson.techniques}`, "aside"));
    if (lesson.published) body.append(made("p", `Published as: ${lesson.published}`, "aside"));
    if (lesson.after) {
      const step = body.appendChild(made("p", "A step from ", "aside"));
      const before = step.appendChild(made("button", lesson.after, "lesson"));
      before.type = "button";
      before.dataset.lesson = lesson.after;
      body.append(part("What changed", coloured(lesson.diff), true));
    }
    body.append(part("Source", code(lesson.source), !lesson.after));
    if (dialog.open) byId("lesson-title").focus();
    else dialog.showModal();
    dialog.scrollTop = 0;
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
}

function addFiles() {
  for (const button of every("button.raw")) {
    button.addEventListener("click", async () => {
      const text = await unpacked(`raw-${button.dataset.raw}`);
      const link = made("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
      link.download = `${button.dataset.name.replaceAll("/", "-")}.json`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }
}

async function begin() {
  addFiles();
  const data = JSON.parse(await unpacked("data"));
  addLessons(data.lessons);
  every("table[data-table]").forEach((table) => {
    new Records(table, data.tables[Number(table.dataset.table)], data.lessons);
  });
  const charts = new Charts(data.charts);
  addTabs(() => charts.drawOpen());
  document.body.dataset.ready = "yes";
  await charts.drawOpen();
}

if ("DecompressionStream" in window) {
  begin();
} else {
  const told = made("p", "This browser cannot unpack the page: open it in one of 2023 or later.", "wrong");
  byId("content").prepend(told);
}
