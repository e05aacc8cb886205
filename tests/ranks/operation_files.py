"""Operations of small training jobs, computed from a program for each stage, for tests of their replay."""

import pandas as pd

TRANSFER_S = 0.001


def pipeline(programs, duration, ranks=2, steps=2, reduce_s=0.005):
    """Return the operations of a job without delays.

    `programs` holds for each stage its computations in order, (kind, chunk, micro-batch) with kind f or b;
    `duration(kind, stage, rank, batch)` is in seconds. Chunk c of stage s is part c * stages + s of the model.
    """
    rows = [row for step in range(steps) for rank in range(ranks) for row in _computed(programs, duration, rank, step)]
    done = pd.DataFrame(rows)
    last = done[done["optype"].str.endswith("compute")].groupby(["step", "stage", "dp_rank"])["end"].max()
    begin = last.groupby(["step", "stage"]).max()
    reductions = [
        _row(step, stage, rank, "grads-reduce-scatter", 0, start, begin[step, stage] + reduce_s, mc=0)
        for (step, stage, rank), start in last.items()
    ]
    table = pd.concat([done, pd.DataFrame(reductions)], ignore_index=True)
    table["rank"] = table["stage"] * ranks + table["dp_rank"]
    return table.assign(duration=table["end"] - table["start_ts"]).drop(columns="end")


def one_forward_one_backward(stages, batches):
    """Return the programs of a 1F1B schedule."""
    programs = []
    for stage in range(stages):
        ahead = min(stages - stage - 1, batches)
        order = [("f", 0, batch) for batch in range(ahead)]
        for batch in range(batches):
            order += [("f", 0, ahead + batch)] if ahead + batch < batches else []
            order.append(("b", 0, batch))
        programs.append(order)
    return programs


def interleaved(stages, batches, chunks):
    """Return the programs of a schedule in which each stage holds several chunks of the model."""
    rounds = [range(at, at + stages) for at in range(0, batches, stages)]
    forward = [("f", chunk, batch) for part in rounds for chunk in range(chunks) for batch in part]
    backward = [("b", chunk, batch) for part in rounds for chunk in reversed(range(chunks)) for batch in part]
    return [forward + backward] * stages


def _computed(programs, duration, rank, step):
    stages, chunks = len(programs), 1 + max(chunk for _, chunk, _ in programs[0])
    last, place = stages * chunks - 1, [0] * stages
    free, channel, ready, count, rows = [0.0] * stages, {}, {}, {}, []
    while any(at < len(program) for at, program in zip(place, programs, strict=True)):
        for stage, program in enumerate(programs):
            if place[stage] == len(program):
                continue
            kind, chunk, batch = program[place[stage]]
            part = chunk * stages + stage
            first = part == (0 if kind == "f" else last)
            if not first and (kind, part, batch) not in ready and not (kind == "b" and first):
                continue
            place[stage] += 1
            start = max(free[stage], ready.get((kind, part, batch), 0.0))
            end = free[stage] = start + duration(kind, stage, rank, batch)
            name = {"f": "forward", "b": "backward"}[kind]
            number = count[stage, kind] = count.get((stage, kind), -1) + 1
            rows.append(_row(step, stage, rank, f"{name}-compute", number, start, end, chunk, part))
            onward = part + (1 if kind == "f" else -1)
            if 0 <= onward <= last:
                before = channel.get((stage, kind), 0.0)
                arrived = channel[stage, kind] = ready[kind, onward, batch] = max(end, before) + TRANSFER_S
                sent = count[stage, name] = count.get((stage, name), -1) + 1
                rows.append(_row(step, stage, rank, f"{name}-send", sent, end, arrived))
                rows.append(_row(step, onward % stages, rank, f"{name}-recv", sent, before, arrived))
    return rows


def _row(step, stage, rank, kind, number, start, end, mc=-1, gmc=-1):
    places = {"step": step, "stage": stage, "dp_rank": rank, "optype": kind, "seq_id": number}
    return {**places, "start_ts": start, "end": end, "mc": mc, "gmc": gmc}
