// Curves over the steps of a run. A value far above the others would press them flat: the axis ends where nearly all of them are.
for (const [index, curve] of data.curves.entries()) {
  const section = make('section'), canvas = make('canvas'), keys = make('span', undefined, 'legend');
  const paints = ['forward', 'limit', 'update'], height = 220;
  canvas.setAttribute('aria-label', curve.title);
  section.append(make('h2', curve.title), keys, canvas);
  element('curves').append(section);
  legend(keys, curve.lines.map((line, at) => [paints[at % paints.length], line.name]));
  const points = curve.lines.flatMap((line) => line.points), values = points.map((point) => point[1]).sort((a, b) => a - b);
  const first = Math.min(...points.map((point) => point[0])), last = Math.max(...points.map((point) => point[0]), first + 1);
  const least = values[0], most = values[Math.min(values.length - 1, Math.ceil(values.length * 0.99))];
  const room = Math.max(most - least, Math.abs(most) * 1e-3, 1e-9) * 0.06;

  function draw() {
    const pen = prepare(canvas, height), width = canvas.clientWidth, left = 56, bottom = height - 20, plot = width - left - 10;
    const low = least - room, high = most + room;
    const x = (step) => left + (step - first) / (last - first) * plot, y = (value) => bottom - (value - low) / (high - low) * (bottom - 8);
    for (const mark of roundSteps(low, high, 5)) {
      pen.fillStyle = color('line');
      pen.fillRect(left, y(mark), plot, 0.5);
      pen.fillStyle = color('soft');
      pen.textAlign = 'right';
      pen.fillText(String(Number(mark.toPrecision(4))), left - 6, y(mark));
    }
    pen.textAlign = 'center';
    for (const mark of roundSteps(first, last, Math.max(2, plot / 110))) {
      if (Number.isInteger(mark)) pen.fillText('step ' + mark, Math.max(left + 20, Math.min(x(mark), width - 30)), height - 8);
    }
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, plot + 1, bottom + 1);
    pen.clip();
    curve.lines.forEach((line, at) => {
      pen.strokeStyle = pen.fillStyle = color(paints[at % paints.length]);
      pen.lineWidth = 1.5;
      pen.beginPath();
      for (const [step, value] of line.points) pen.lineTo(x(step), y(value));
      pen.stroke();
      if (line.points.length <= 60) for (const [step, value] of line.points) pen.fillRect(x(step) - 2, y(value) - 2, 4, 4);
    });
    pen.restore();
  }
  view.redraw.push(draw);
  if (index === 0) redraw();
}
