"""``neuraldbg run`` on programs as people write them: it finds models, optimizers, losses and steps by itself."""

from __future__ import annotations

import pytest
from tests.end_to_end.place import HEAD, MODEL, TRAIN, Place, record, script


def no_errors(run) -> None:
    assert run.info.coverage["errors"] == 0, run.info.coverage


def test_a_gan_with_two_optimizers(place: Place) -> None:
    done = place.run(
        source=script("""
        class G(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
            def forward(self, z):
                return self.net(z)
        class D(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
            def forward(self, x):
                return self.net(x)
        G, D = G(), D()
        opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.9))
        opt_d = torch.optim.RMSprop(D.parameters(), lr=1e-3)
        bce = nn.BCEWithLogitsLoss()
        for a, _ in batches(40):
            fake = G(torch.randn(len(a), 4))
            opt_d.zero_grad()
            (bce(D(a), torch.ones(len(a), 1)) + bce(D(fake.detach()), torch.zeros(len(a), 1))).backward()
            opt_d.step()
            opt_g.zero_grad()
            bce(D(fake), torch.ones(len(a), 1)).backward()
            opt_g.step()
        """)
    )
    assert done.status == 0, done.err
    run = record(done)
    no_errors(run)
    assert sorted(run.info.models) == ["D", "G"]
    assert sorted(run.info.optimizers) == ["Adam", "RMSprop"]
    assert run.steps == 80
    assert run.streams == (0, 1)
    paths = {layer.path for layer in run.layout.layers}
    assert {"G.net.0", "D.net.0"} <= paths or {"G.net.0", "net.0"} <= paths or {"D.net.0", "net.0"} <= paths


@pytest.mark.long
def test_an_optimizer_of_the_users_own(place: Place) -> None:
    done = place.run(
        source=script(
            MODEL,
            """
        class Sign(torch.optim.Optimizer):
            def __init__(self, params, lr):
                super().__init__(params, {"lr": lr})
            @torch.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        if p.grad is not None:
                            p.add_(p.grad.sign(), alpha=-group["lr"])
        opt = Sign(model.parameters(), lr=1e-3)
        for a, b in batches(40):
            opt.zero_grad()
            F.cross_entropy(model(a), b).backward()
            opt.step()
        """,
        )
    )
    assert done.status == 0, done.err
    run = record(done)
    no_errors(run)
    assert (run.steps, run.info.optimizers, run.info.models) == (40, ("Sign",), ("model",))
    assert run.scalar("lr").values.tolist() == [1e-3] * 40
    assert len(run.scalar("loss")) == 40


@pytest.mark.long
def test_lbfgs_with_a_closure(place: Place) -> None:
    done = place.run(
        source=script("""
        model = nn.Linear(8, 3)
        opt = torch.optim.LBFGS(model.parameters(), max_iter=5)
        def closure():
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss
        for _ in range(10):
            print(float(opt.step(closure).detach()))
        """)
    )
    assert done.status == 0, done.err
    run = record(done)
    no_errors(run)
    assert run.steps == 10
    assert run.scalar("loss").values.tolist() == pytest.approx([float(line) for line in done.out.split()], rel=1e-5)
    assert max(run.scalar("backwards").values) > 1


@pytest.mark.long
def test_an_optimizer_made_anew_every_epoch(place: Place) -> None:
    done = place.run(
        source=script(
            MODEL,
            """
        def epoch(lr):
            opt = torch.optim.SGD(model.parameters(), lr=lr)
            for a, b in batches(10):
                opt.zero_grad()
                F.cross_entropy(model(a), b).backward()
                opt.step()
        for lr in (0.1, 0.05, 0.02):
            epoch(lr)
        """,
        )
    )
    assert done.status == 0, done.err
    run = record(done)
    no_errors(run)
    assert run.steps == 30
    assert run.info.optimizers == ("SGD",)
    assert run.scalar("lr").values.tolist() == [0.1] * 10 + [0.05] * 10 + [0.02] * 10


def test_a_model_called_by_its_parts(place: Place) -> None:
    done = place.run(
        source=script("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
                self.head = nn.Linear(16, 3)
        def main():
            model = Net()
            opt = torch.optim.Adam(model.parameters(), lr=1e-2)
            for a, b in batches(30):
                opt.zero_grad()
                z = model.encoder(a)
                F.cross_entropy(model.head(z), b).backward()
                opt.step()
        main()
        """)
    )
    assert done.status == 0, done.err
    run = record(done)
    no_errors(run)
    assert (run.steps, run.info.models) == (30, ("model",))
    assert {layer.path for layer in run.layout.layers} >= {"encoder.0", "head"}
    assert run.scalar("forwards").values.tolist() == [1.0] * 30
    assert run.info.coverage["never_fired"] == []
    assert run.diagnose().verdict == "healthy"


@pytest.mark.long
def test_forward_called_directly(place: Place) -> None:
    """``model.forward(x)`` passes by every hook of the model itself, not by those of its parts."""
    done = place.run(
        source=script("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc1, self.fc2 = nn.Linear(8, 16), nn.Linear(16, 3)
            def forward(self, x):
                return self.fc2(self.fc1(x).relu())
        model = Net()
        opt = torch.optim.Adam(model.parameters(), lr=1e-2)
        for a, b in batches(30):
            opt.zero_grad()
            F.cross_entropy(model.forward(a), b).backward()
            opt.step()
        """)
    )
    assert done.status == 0, done.err
    run = record(done)
    no_errors(run)
    assert (run.steps, run.info.models) == (30, ("model",))
    assert run.info.coverage["never_fired"] == []
    assert run.scalar("forwards").values.tolist() == [1.0] * 30
    assert run.diagnose().verdict == "healthy"


def test_evaluation_is_told_from_training(place: Place) -> None:
    place.write(
        "train.py",
        script("""
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
        opt = torch.optim.Adam(model.parameters(), lr=1e-2)
        for epoch in range(4):
            model.train()
            for a, b in batches(10):
                opt.zero_grad()
                F.cross_entropy(model(a), b).backward()
                opt.step()
            model.eval()
            with torch.no_grad():
                for a, b in batches(3):
                    model(a * 1000)
            model(x * 1000)   # somebody forgot no_grad
        """),
    )
    done = place.run("--overhead", "full", "train.py")  # each step is read, however busy the machine is
    assert done.status == 0, done.err
    run = record(done)
    no_errors(run)
    assert run.steps == 40
    evals = run.scalar("evals").values
    # Counted at the step that follows them: those after the last step have none.
    assert {i: n for i, n in enumerate(evals) if n} == {10: 3, 20: 3, 30: 3}
    assert set(run.scalar("eval_layers").values) == {0.0}
    row = next(i for i, site in enumerate(run.layout.sites) if (site.kind, site.module) == ("activation", "0"))
    assert max(run.series(row, "rms").values) < 20  # none of the evaluation's inputs got in
    assert [h.cause for h in run.diagnose().hypotheses] == ["split_skew"]  # and that they are others is noticed


@pytest.mark.long
def test_training_in_eval_mode_is_seen(place: Place) -> None:
    place.write(
        "train.py",
        script("""
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
        opt = torch.optim.Adam(model.parameters(), lr=1e-2)
        for epoch in range(4):
            for a, b in batches(20):
                opt.zero_grad()
                F.cross_entropy(model(a), b).backward()
                opt.step()
            model.eval()
            with torch.no_grad():
                model(x)
        """),
    )
    done = place.run("--overhead", "full", "train.py")
    assert done.status == 0, done.err
    run = record(done)
    assert run.scalar("eval_layers").values.tolist() == [0.0] * 20 + [2.0] * 60
    assert done.diagnosis["verdict"] != "healthy"
    assert "eval_mode_left_on" in [h["cause"] for h in done.diagnosis["hypotheses"]]


def test_a_script_that_trains_nothing(place: Place) -> None:
    done = place.run(source=script(MODEL, "print(model(x).shape)\n"))
    assert (done.status, done.out) == (0, "torch.Size([256, 3])\n")
    diagnosis = done.diagnosis
    assert diagnosis["verdict"] == "inconclusive"
    assert "optimizer" in diagnosis["summary"] or "optimizer" in str(diagnosis["unjudged"])
    assert "inconclusive" in done.err.lower()


def test_a_script_without_torch(place: Place) -> None:
    done = place.run(source="print('hello')\n")
    assert (done.status, done.out) == (0, "hello\n")
    assert done.err.startswith("neuraldbg: train.py ended without importing torch: nothing was watched")
    assert not done.run.exists()


def test_a_torch_compiled_model(place: Place) -> None:
    done = place.run(
        source=script(MODEL, "model = torch.compile(model, backend='aot_eager')\n", TRAIN.format(steps=12))
    )
    assert done.status == 0, done.err
    run = record(done)
    no_errors(run)
    assert run.steps == 12
    assert run.info.coverage["never_fired"] == []
    assert len(run.scalar("loss")) == 12


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_workers(place: Place, method: str) -> None:
    done = place.run(
        source=HEAD
        + """
from torch.utils.data import DataLoader, Dataset
class Points(Dataset):
    def __len__(self): return 96
    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        x = torch.randn(8, generator=g)
        return x, int(x.sum() > 0)
def main():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        for a, b in DataLoader(Points(), 16, num_workers=2, multiprocessing_context="""
        + repr(method)
        + """):
            opt.zero_grad()
            F.cross_entropy(model(a), b).backward()
            opt.step()
    print("done", flush=True)
if __name__ == "__main__":
    main()
"""
    )
    assert (done.status, done.out) == (0, "done\n"), done.err
    run = record(done)
    no_errors(run)
    assert run.steps == 18
    assert done.err.count("Saved in") == 1
    assert [p.name for p in sorted(done.run.iterdir())] == ["diagnosis.json", "rank0.ndbg"]
