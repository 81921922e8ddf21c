// What the other scripts share: the data, formats, tables, the tip, and the span of time that both charts show.
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const element = (id) => document.getElementById(id);

function make(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function figure(value) { return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2); }
function bytesText(count) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  while (count >= 1024 && unit + 1 < units.length) { count /= 1024; ++unit; }
  return (unit ? figure(count) : count) + ' ' + units[unit];
}
function secondsText(value) {
  if (value === 0) return '0 s';
  if (value >= 172800) return figure(value / 86400) + ' days';
  if (value >= 7200) return figure(value / 3600) + ' h';
  if (value >= 1) return figure(value) + ' s';
  return value >= 1e-3 ? figure(value * 1e3) + ' ms' : figure(value * 1e6) + ' µs';
}
function countText(value) {
  for (const [size, unit] of [[1e12, ' T'], [1e9, ' G'], [1e6, ' M'], [1e3, ' k']]) if (value >= size) return figure(value / size) + unit;
  return Number.isInteger(value) ? String(value) : figure(value);
}
const formats = {text: String, seconds: secondsText, count: countText, percent: (value) => (100 * value).toFixed(1) + '%', bytes: bytesText};
// Without predicted times, the axis counts calls.
const timeText = (tick) => data.seconds_per_tick > 0 ? secondsText(tick * data.seconds_per_tick) : 'call ' + Math.round(tick);
const durationText = (ticks) => data.seconds_per_tick > 0 ? secondsText(ticks * data.seconds_per_tick) : ticks + (ticks === 1 ? ' call' : ' calls');
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();

const tip = element('tip');
function showTip(event, lines) {
  tip.replaceChildren(...lines.map((line) => make('div', line)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 6)) + 'px';
  tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + 'px';
}
function hideTip() { tip.hidden = true; }

function legend(target, entries) {
  target.replaceChildren(...entries.map(([name, text]) => {
    const entry = make('span');
    const swatch = make('i');
    swatch.style.background = 'var(--' + name + ')';
    entry.append(swatch, text);
    return entry;
  }));
}

// A canvas as large as its place on the screen, in device pixels.
function prepare(canvas, height) {
  const width = canvas.clientWidth, scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = height + 'px';
  }
  const pen = canvas.getContext('2d');
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = '11px system-ui, sans-serif';
  pen.textBaseline = 'middle';
  return pen;
}

// `whole`: the length of the times that are shown.
const view = {begin: 0, end: data.ticks, whole: data.ticks, redraw: []};
let frame = 0;
function redraw() {
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(() => view.redraw.forEach((draw) => draw()));
}
// Draws for the first time, without waiting for a frame, and notes after how many milliseconds the page can be used.
function ready() {
  view.redraw.forEach((draw) => draw());
  document.documentElement.dataset.ready = Math.round(performance.now());
}
function show(begin, end) {
  const least = Math.max(view.whole / 1e5, data.seconds_per_tick > 0 ? 1 : 4);
  const length = Math.min(view.whole, Math.max(least, end - begin));
  const start = Math.max(0, Math.min(view.whole - length, begin));
  view.begin = start;
  view.end = start + length;
  redraw();
}
function zoom(factor, around) {
  if (factor === 0) return show(0, view.whole);
  const middle = around === undefined ? (view.begin + view.end) / 2 : around;
  show(middle - (middle - view.begin) / factor, middle + (view.end - middle) / factor);
}
const labelWidth = () => innerWidth < 600 ? 92 : 150;

// Round steps for an axis of about `count` marks: round seconds, where there are times.
function marks(begin, end, count) {
  const unit = data.seconds_per_tick > 0 ? data.seconds_per_tick : 1;
  return roundSteps(begin * unit, end * unit, count).map((mark) => mark / unit);
}
function roundSteps(begin, end, count) {
  const rough = (end - begin) / count, power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 5, 10].map((m) => m * power).find((size) => size >= rough);
  const found = [];
  for (let at = Math.ceil(begin / step) * step; at <= end; at += step) found.push(at);
  return found;
}

function sortable(table) {
  const section = make('section');
  section.append(make('h2', table.title));
  if (table.about) section.append(make('p', table.about, 'about'));
  const wide = make('div', undefined, 'wide'), grid = make('table'), head = make('tr'), body = make('tbody');
  const rows = table.rows.map((cells, index) => {
    const row = make('tr', undefined, index === table.chosen ? 'chosen' : table.refused.includes(index) ? 'refused' : '');
    cells.forEach((cell, column) => {
      const format = table.columns[column].format;
      row.append(make('td', cell === null ? '–' : formats[format](cell), format === 'text' && column > 0 ? 'words' : ''));
    });
    return {cells, row, index};
  });
  table.columns.forEach((column, index) => {
    const cell = make('th', undefined, column.format === 'text' && index > 0 ? 'words' : ''), button = make('button', column.title);
    button.type = 'button';
    button.addEventListener('click', () => {
      const down = cell.getAttribute('aria-sort') === 'ascending';
      head.querySelectorAll('th').forEach((other) => other.removeAttribute('aria-sort'));
      cell.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const sign = down ? -1 : 1;
      rows.sort((a, b) => {
        const x = a.cells[index], y = b.cells[index];
        if (x === null || y === null) return x === y ? a.index - b.index : x === null ? 1 : -1;
        return (typeof x === 'string' ? sign * x.localeCompare(y, undefined, {numeric: true}) : sign * (x - y)) || a.index - b.index;
      });
      body.append(...rows.map((entry) => entry.row));
    });
    cell.append(button);
    head.append(cell);
  });
  const top = make('thead');
  top.append(head);
  body.append(...rows.map((entry) => entry.row));
  grid.append(top, body);
  wide.append(grid);
  section.append(wide);
  return section;
}

element('model').textContent = data.model;
element('strategy').textContent = data.strategy;
element('notes').append(...data.notes.map((note) => make('li', note)));
element('figures').append(...data.figures.map(([name, value]) => {
  const box = make('div');
  box.append(make('dt', name), make('dd', value));
  return box;
}));
element('tables').append(...data.tables.map(sortable));

// A plan too large to be drawn has its tables alone.
const drawn = data.classes.length > 0;
if (!drawn) {
  for (const name of ['timeline', 'memory', 'traffic']) element(name).remove();
  document.documentElement.dataset.ready = Math.round(performance.now());
}

if (drawn) (function traffic() {
  const table = element('traffic-table'), most = Math.max(1, ...data.traffic.map((entry) => entry.bytes));
  if (!data.traffic.length) return element('traffic').replaceChildren(make('h2', 'Communication'), make('p', 'One rank: nothing is sent.', 'about'));
  const head = make('tr');
  head.append(make('th', 'between'), make('th', 'what', 'words'), make('th', 'calls'), make('th', 'bytes'), make('th', '', 'words'));
  table.append(head);
  for (const entry of data.traffic) {
    const row = make('tr'), bar = make('td', undefined, 'words'), share = make('span', undefined, 'share');
    share.style.width = Math.max(1, 100 * entry.bytes / most) + '%';
    share.style.background = 'var(--' + (entry.kind === 'message' ? 'send' : 'communication') + ')';
    bar.append(share);
    row.append(make('td', entry.axis), make('td', entry.kind.replace('_', '-'), 'words'), make('td', entry.calls), make('td', bytesText(entry.bytes)), bar);
    table.append(row);
  }
})();
