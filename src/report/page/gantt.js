// The timeline: a row for each stream of each class of ranks, on a canvas that shows the span of time in `view`.
if (drawn) (function gantt() {
  const canvas = element('gantt'), rowHeight = 16, axisHeight = 22;
  const wanted = element('gantt-rows');
  let rows = [];

  function layOut() {
    rows = [];
    data.classes.forEach((ranks) => {
      let first = true;
      for (const stream of ranks.streams) {
        if (wanted.value === 'compute' && !stream.kind.includes('compute')) continue;
        rows.push({ranks, stream, first});
        first = false;
      }
    });
    redraw();
  }

  const used = new Set();
  for (const ranks of data.classes) for (const stream of ranks.streams) for (let i = 0; i < stream.spans.length; i += 4) used.add(data.label_works[stream.spans[i]]);
  legend(element('legend'), [...used].sort((a, b) => a - b).map((index) => data.works[index]));

  // Two lists of times for the same calls: the reader chooses which is drawn.
  const times = element('gantt-times');
  if (data.beside_name) {
    element('gantt-times-label').hidden = false;
    times.options[0].textContent = data.times_name;
    times.options[1].textContent = data.beside_name;
    for (const ranks of data.classes) for (const stream of ranks.streams) {
      const first = stream.spans, second = first.slice();
      for (let i = 0; i < stream.beside.length / 2; ++i) {
        second[4 * i + 2] = stream.beside[2 * i];
        second[4 * i + 3] = stream.beside[2 * i + 1];
      }
      stream.choices = {spans: first, beside: second};
    }
    times.addEventListener('change', () => {
      for (const ranks of data.classes) for (const stream of ranks.streams) stream.spans = stream.choices[times.value];
      view.whole = times.value === 'beside' ? data.ticks_beside : data.ticks;
      zoom(0);
    });
  }

  const timed = data.seconds_per_tick > 0;
  element('timeline-about').textContent = timed
      ? 'Ranks that behave alike share their rows.'
      : 'In the order of each rank\u2019s calls; ranks that behave alike share their rows. No cluster was given, so calls have no length.';

  function draw() {
    const height = axisHeight + rows.length * rowHeight + 4, pen = prepare(canvas, height);
    const width = canvas.clientWidth, left = labelWidth(), plot = width - left - 8;
    const scale = plot / (view.end - view.begin), x = (tick) => left + (tick - view.begin) * scale;
    const paints = data.works.map(([name]) => color(name)), ink = color('ink'), soft = color('soft'), line = color('line');
    pen.strokeStyle = line;
    pen.fillStyle = soft;
    pen.textAlign = 'center';
    for (const mark of marks(view.begin, view.end, Math.max(2, plot / 110))) {
      pen.fillRect(x(mark), axisHeight, 0.5, height);
      const text = timeText(mark), half = pen.measureText(text).width / 2;
      pen.fillText(text, Math.max(left + half, Math.min(x(mark), width - half - 2)), axisHeight / 2);
    }
    rows.forEach((row, index) => {
      const top = axisHeight + index * rowHeight;
      pen.textAlign = 'left';
      if (row.first) {
        pen.fillStyle = line;
        pen.fillRect(0, top - 0.5, width, 1);
        pen.fillStyle = ink;
        pen.fillText(fitted(pen, className(row.ranks.name, left), left - (left < 120 ? 52 : 62)), 4, top + rowHeight / 2);
      }
      pen.fillStyle = soft;
      pen.textAlign = 'right';
      pen.fillText(streamName(row.stream.kind, left), left - 6, top + rowHeight / 2);
      pen.textAlign = 'center';
      const spans = row.stream.spans;
      for (let i = 0; i < spans.length; i += 4) {
        const begin = spans[i + 2], end = begin + spans[i + 3];
        if (end < view.begin || begin > view.end) continue;
        const from = Math.max(left, x(begin)), to = Math.min(left + plot, x(end));
        pen.fillStyle = paints[data.label_works[spans[i]]];
        const gap = to - from > 3 ? 0.5 : 0;
        pen.fillRect(from, top + 1.5, Math.max(0.7, to - from - gap), rowHeight - 3);
        if (to - from > 20) {
          pen.fillStyle = '#fff';
          pen.fillText(fitted(pen, to - from > 110 ? data.labels[spans[i]] + ' ' + spans[i + 1] : String(spans[i + 1]), to - from - 4), (from + to) / 2, top + rowHeight / 2 + 0.5);
        }
      }
    });
  }
  const short = {communication: 'comm', host_compute: 'host', compute: 'compute', receive: 'recv'};
  const streamName = (kind, left) => left < 120 ? short[kind] || kind.replace('_', ' ') : kind.replace('_', ' ');
  const className = (name, left) => left < 120 ? name.replace('pipe ', 'p').replace('tensor ', 't').replace(',', '') : name;
  function fitted(pen, text, room) {
    if (pen.measureText(text).width <= room) return text;
    while (text.length > 1 && pen.measureText(text + '…').width > room) text = text.slice(0, -1);
    return text + '…';
  }

  const tickAt = (clientX) => {
    const box = canvas.getBoundingClientRect(), left = labelWidth();
    return view.begin + (clientX - box.left - left) / (box.width - left - 8) * (view.end - view.begin);
  };
  function pointed(event) {
    const row = rows[Math.floor((event.clientY - canvas.getBoundingClientRect().top - axisHeight) / rowHeight)];
    const tick = tickAt(event.clientX);
    if (!row || tick < view.begin) return null;
    const spans = row.stream.spans;
    for (let i = 0; i < spans.length; i += 4) {
      if (spans[i + 2] <= tick && tick < spans[i + 2] + spans[i + 3]) return {row, label: data.labels[spans[i]], micro: spans[i + 1], begin: spans[i + 2], length: spans[i + 3]};
    }
    return null;
  }
  function explain(event) {
    const hit = pointed(event);
    if (!hit) return hideTip();
    const lines = [hit.label + ', micro-batch ' + hit.micro, hit.row.ranks.name + ' (' + hit.row.ranks.rank_text + '), ' + hit.row.stream.kind.replace('_', ' ')];
    lines.push(timed ? timeText(hit.begin) + ' + ' + durationText(hit.length) : timeText(hit.begin));
    showTip(event, lines);
  }

  const pointers = new Map();
  canvas.addEventListener('pointerdown', (event) => { pointers.set(event.pointerId, event.clientX); canvas.setPointerCapture(event.pointerId); });
  for (const name of ['pointerup', 'pointercancel']) canvas.addEventListener(name, (event) => pointers.delete(event.pointerId));
  canvas.addEventListener('pointerleave', hideTip);
  canvas.addEventListener('pointermove', (event) => {
    if (!pointers.has(event.pointerId)) return explain(event);
    const before = pointers.get(event.pointerId);
    if (pointers.size === 1) {
      const moved = tickAt(before) - tickAt(event.clientX);
      show(view.begin + moved, view.end + moved);
    } else {
      const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
      const was = Math.abs(before - other), now = Math.abs(event.clientX - other);
      if (was > 4 && now > 4) zoom(now / was, tickAt((event.clientX + other) / 2));
    }
    pointers.set(event.pointerId, event.clientX);
  });
  canvas.addEventListener('wheel', (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 300), tickAt(event.clientX));
  }, {passive: false});
  canvas.addEventListener('dblclick', (event) => zoom(3, tickAt(event.clientX)));
  canvas.addEventListener('keydown', (event) => {
    const step = (view.end - view.begin) / 5;
    const act = {'+': () => zoom(2), '=': () => zoom(2), '-': () => zoom(0.5), '0': () => zoom(0), ArrowLeft: () => show(view.begin - step, view.end - step), ArrowRight: () => show(view.begin + step, view.end + step)}[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  document.querySelectorAll('[data-zoom]').forEach((button) => button.addEventListener('click', () => zoom(Number(button.dataset.zoom))));
  wanted.addEventListener('change', layOut);
  view.redraw.push(draw);
  layOut();
})();
