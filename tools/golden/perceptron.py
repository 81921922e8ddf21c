#!/usr/bin/env python3
"""Writes what PyTorch makes of the perceptron of tests/extending: losses of some steps, in f64.

Rows are numbers with few digits, so that the table holds them exactly; weights follow a formula that the test repeats.

usage: perceptron.py tests/extending/data
"""
import json
import math
import sys
from pathlib import Path

import torch

WIDTHS, FEATURES, ROWS, STEPS, RATE = [6, 9, 5], 4, 16, 8, 0.05


def rows(task):
    table = []
    for row in range(ROWS):
        features = [round(math.sin(1.3 * row + 0.9 * column), 3) for column in range(FEATURES)]
        if task == "classify":
            table.append(features + [(row * 7 + row // 3) % 3])
        else:
            table.append(features + [round(features[0] * features[1] - 0.5 * features[2], 3), round(features[3] ** 2, 3)])
    return table


def fill(tensor, number):
    """Element i of parameter `number` is 0.4 sin(0.7 i + number)."""
    count = tensor.numel()
    with torch.no_grad():
        tensor.copy_((0.4 * torch.sin(0.7 * torch.arange(count, dtype=torch.float64) + number)).reshape(tensor.shape))


class Perceptron(torch.nn.Module):
    def __init__(self, outputs):
        super().__init__()
        inner = [FEATURES] + WIDTHS
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in zip(inner, inner[1:]))
        self.join = torch.nn.Linear(WIDTHS[-1], WIDTHS[0])
        self.result = torch.nn.Linear(WIDTHS[0], outputs)

    def forward(self, x):
        first = None
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x), approximate="tanh")
            first = x if first is None else first
        return self.result(self.join(x) + first)


def losses_of(task, table):
    outputs = 3 if task == "classify" else 2
    model = Perceptron(outputs).double()
    for number, parameter in enumerate(model.parameters()):
        fill(parameter, number)
    data = torch.tensor(table, dtype=torch.float64)
    features, targets = data[:, :FEATURES], data[:, FEATURES:]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses = []
    for _ in range(STEPS):
        made = model(features)
        if task == "classify":
            loss = torch.nn.functional.cross_entropy(made, targets[:, 0].long())
        else:
            loss = torch.nn.functional.mse_loss(made, targets)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    golden = {"widths": WIDTHS, "features": FEATURES, "rows": ROWS, "rate": RATE}
    for task in ("regress", "classify"):
        table = rows(task)
        (folder / f"{task}.csv").write_text("".join(",".join(str(value) for value in row) + "\n" for row in table))
        golden[task] = losses_of(task, table)
    (folder / "perceptron.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
