// Bytes in use over the step, by kind, of one class of ranks and one tier, under the line of what the tier holds.
if (drawn && data.outlined) (function arenas() {
  element('memory').querySelector('.bar').remove();
  element('water').remove();
  element('memory').querySelector('h2').textContent = 'Memory';
  element('memory-about').textContent = 'This plan was simulated from an outline, which has every call of the step, but no buffers: it knows what ' +
      'each rank needs at its fullest, and cannot show what fills the memory over the step. A page for fewer ranks has that line.';
  const tiers = ['device', 'host', 'disk'].filter((name) => data.classes.some((ranks) => ranks.tiers.some((tier) => tier.name === name)));
  const head = make('tr');
  head.append(make('th', 'ranks'), ...tiers.map((name) => make('th', name)), make('th', 'of the device'));
  element('peak').replaceChildren(head, ...data.classes.map((ranks) => {
    const row = make('tr'), of = (name) => ranks.tiers.find((tier) => tier.name === name);
    const device = of('device');
    row.append(make('td', ranks.name + ': ' + ranks.rank_text), ...tiers.map((name) => make('td', of(name) ? bytesText(of(name).arena) : '–')));
    row.append(make('td', device.capacity ? (100 * (device.arena + device.reserve) / device.capacity).toFixed(1) + '%' : '–'));
    return row;
  }));
  ready();
})();
else if (drawn) (function waterline() {
  const canvas = element('water'), height = 260, chooseClass = element('memory-class'), chooseTier = element('memory-tier');
  data.classes.forEach((ranks, index) => chooseClass.append(new Option(ranks.name + ': ' + ranks.rank_text + ' (' + bytesText(ranks.tiers[0].arena) + ')', index)));
  chooseClass.value = String(data.fullest);

  function tiersOfClass() {
    const before = chooseTier.value;
    chooseTier.replaceChildren(...data.classes[chooseClass.value].tiers.map((tier, index) => new Option(tier.name, index)));
    chooseTier.value = chooseTier.options[before] ? before : '0';
    describe();
  }
  const chosen = () => data.classes[chooseClass.value].tiers[chooseTier.value];

  function describe() {
    const tier = chosen();
    legend(element('memory-legend'), tier.kinds.map((kind) => [paintOf(kind), kind]));
    const limit = tier.capacity ? ' of ' + bytesText(tier.capacity) : '';
    element('memory-about').textContent = 'The arena of a rank takes ' + bytesText(tier.arena) + limit + ', to the byte' +
        (tier.reserve ? '; beside it lie about ' + bytesText(tier.reserve) + ' of program, libraries and data.' : '.');
    element('peak-title').textContent = 'On top at the peak: ' + bytesText(tier.peak.bytes) + ' in ' + tier.peak.label;
    const head = make('tr');
    head.append(make('th', 'tensor'), make('th', 'kind', 'words'), make('th', 'bytes'), make('th', 'share'));
    element('peak').replaceChildren(head, ...tier.peak.top.map(([name, kind, bytes]) => {
      const row = make('tr');
      row.append(make('td', name), make('td', kind, 'words'), make('td', bytesText(bytes)), make('td', (100 * bytes / tier.peak.bytes).toFixed(1) + '%'));
      return row;
    }));
    redraw();
  }
  const paints = {parameters: 'parameter', masters: 'master', states: 'state', gradients: 'gradient', activations: 'activation', working: 'frame'};
  const paintOf = (kind) => paints[kind] || 'other';

  function draw() {
    const tier = chosen(), pen = prepare(canvas, height), width = canvas.clientWidth;
    const left = Math.min(labelWidth(), 92), bottom = height - 20, plot = width - left - 8, soft = color('soft'), line = color('line');
    const need = Math.max(tier.arena, tier.peak.bytes), limit = tier.capacity || 0;
    const near = limit > 0 && limit < 2.5 * need;
    const top = near ? Math.max(need, limit) * 1.06 : need * 1.1;
    const x = (tick) => left + (tick - view.begin) / (view.end - view.begin) * plot, y = (bytes) => bottom - bytes / top * (bottom - 12);
    pen.fillStyle = soft;
    pen.textAlign = 'right';
    for (const part of [0, 0.25, 0.5, 0.75, 1]) {
      pen.fillStyle = line;
      pen.fillRect(left, y(part * need), plot, 0.5);
      pen.fillStyle = soft;
      pen.fillText(bytesText(Math.round(part * need)), left - 6, y(part * need));
    }
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, plot, bottom + 0.5);
    pen.clip();
    const base = new Float64Array(tier.at.length);
    tier.kinds.forEach((kind, index) => {
      const series = tier.bytes[index];
      pen.fillStyle = color(paintOf(kind));
      pen.beginPath();
      pen.moveTo(x(tier.at[0]), y(base[0]));
      for (let i = 0; i < series.length; ++i) {
        const to = i + 1 < series.length ? tier.at[i + 1] : Math.max(data.ticks, view.whole), level = y(base[i] + series[i] * tier.quantum);
        pen.lineTo(x(tier.at[i]), level);
        pen.lineTo(x(to), level);
      }
      for (let i = series.length - 1; i >= 0; --i) {
        pen.lineTo(x(i + 1 < series.length ? tier.at[i + 1] : Math.max(data.ticks, view.whole)), y(base[i]));
        pen.lineTo(x(tier.at[i]), y(base[i]));
        base[i] += series[i] * tier.quantum;
      }
      pen.fill();
    });
    const peak = x(tier.peak.tick);
    pen.fillStyle = color('ink');
    pen.fillRect(peak - 0.5, y(tier.peak.bytes) - 8, 1, 8);
    pen.restore();
    pen.textAlign = 'center';
    if (peak >= left && peak <= left + plot) pen.fillText('peak', Math.max(left + 14, Math.min(peak, width - 22)), Math.max(7, y(tier.peak.bytes) - 14));
    pen.fillStyle = color('limit');
    if (near) {
      pen.fillRect(left, y(limit) - 0.75, plot, 1.5);
      // On the side where the peak is not.
      const right = peak < left + plot / 2;
      pen.textAlign = right ? 'right' : 'left';
      pen.fillText('limit ' + bytesText(limit), right ? width - 10 : left + 4, y(limit) + (y(limit) > 20 ? -8 : 9));
    } else if (limit > 0) {
      const right = peak < left + plot / 2;
      pen.textAlign = right ? 'right' : 'left';
      pen.fillText('limit ' + bytesText(limit) + ', ' + figure(limit / need) + ' times this, is above', right ? width - 10 : left + 4, 6);
    }
    pen.fillStyle = soft;
    pen.textAlign = 'center';
    for (const mark of marks(view.begin, view.end, Math.max(2, plot / 110))) {
      const text = timeText(mark), half = pen.measureText(text).width / 2;
      pen.fillText(text, Math.max(left + half, Math.min(x(mark), width - half - 2)), height - 8);
    }
  }

  canvas.addEventListener('pointermove', (event) => {
    const tier = chosen(), box = canvas.getBoundingClientRect(), left = Math.min(labelWidth(), 92);
    const tick = view.begin + (event.clientX - box.left - left) / (box.width - left - 8) * (view.end - view.begin);
    let i = tier.at.findIndex((at) => at > tick);
    i = i < 0 ? tier.at.length - 1 : Math.max(0, i - 1);
    if (tick < view.begin) return hideTip();
    const parts = tier.kinds.map((kind, index) => [kind, tier.bytes[index][i] * tier.quantum]);
    showTip(event, [timeText(tick) + ': ' + bytesText(parts.reduce((sum, part) => sum + part[1], 0)), ...parts.filter((part) => part[1] > 0).map((part) => part[0] + ' ' + bytesText(part[1]))]);
  });
  canvas.addEventListener('pointerleave', hideTip);
  chooseClass.addEventListener('change', tiersOfClass);
  chooseTier.addEventListener('change', describe);
  view.redraw.push(draw);
  tiersOfClass();
  addEventListener('resize', redraw);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  ready();
})();
