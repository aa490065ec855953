"""neural_config.yaml: what it may say, and one clear line for each thing that is wrong with it."""

from __future__ import annotations

import sys
import time

import pytest

from neuraldbg.dashboard import CHARTS
from neuraldbg.dashboard.settings import DashboardSettings, load_settings
from neuraldbg.errors import ConfigError, MissingExtra

DOCUMENTED = """
dashboard:
  theme: dark
  refresh_rate: 1.0  # seconds
  max_history: 1000  # data points
  charts:
    - execution_trace
    - gradient_flow
    - memory_profile
"""


@pytest.fixture
def config(tmp_path):
    def written(text):
        file = tmp_path / "neural_config.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return written


def problems(file):
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    assert str(file) in str(caught.value)
    return [line.strip() for line in str(caught.value).splitlines()]


def test_the_documented_file_is_read(config):
    settings = load_settings(config(DOCUMENTED))
    assert settings == DashboardSettings(
        theme="dark", refresh_rate=1.0, max_history=1000, charts=("execution_trace", "gradients", "memory")
    )


def test_without_a_file_the_defaults_hold(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_settings() == DashboardSettings()
    assert DashboardSettings().charts == CHARTS
    (tmp_path / "neural_config.yaml").write_text("dashboard: {theme: light}\nmodel: {layers: 3}\n")
    assert load_settings().theme == "light"
    with pytest.raises(ConfigError, match=r"elsewhere\.yaml cannot be read: No such file"):
        load_settings("elsewhere.yaml")


@pytest.mark.parametrize("text", ["", "# nothing\n", "dashboard:\n", "model: {layers: 3}\n"])
def test_a_file_that_says_nothing_of_the_dashboard_is_fine(config, text):
    assert load_settings(config(text)) == DashboardSettings()


def test_every_wrong_thing_is_named_at_once(config):
    said = problems(
        config(
            "dashboard:\n  theme: drak\n  refresh_rat: 2\n  max_history: -5\n  refresh_rate: fast\n  3: 4\n"
            "  charts: [gradient_flo, memory, runs, nonsense]\n"
        )
    )
    assert said[0].endswith("the section 'dashboard' has wrong settings:")
    assert sorted(line.split(":")[0].split(" (")[0] for line in said[1:]) == [
        "charts", "max_history", "refresh_rate", "theme", "unknown setting '3'", "unknown setting 'refresh_rat'"
    ]  # fmt: skip
    text = "\n".join(said)
    assert "unknown setting 'refresh_rat' (did you mean 'refresh_rate'?)" in text
    assert "unknown setting '3' (known: theme, refresh_rate, max_history, lease, charts)" in text
    assert "theme: must be 'auto', 'dark' or 'light', not 'drak'" in text
    assert "no chart is called 'gradient_flo' (did you mean 'gradient_flow'?); no chart is called 'nonsense'" in text
    assert "max_history: must be at least 10, not -5" in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dashbord: {theme: dark}", "unknown section 'dashbord'. Did you mean 'dashboard'?"),
        ("- dashboard", "expected sections such as `dashboard:`"),
        ("dashboard: dark", "holds settings by name, not 'dark'"),
        ("dashboard: {theme: [}", "is no valid YAML"),
        ("dashboard: !!python/object/apply:os.system ['exit']", "is no valid YAML"),
        ("dashboard: {charts: []}", "charts: must be a list of at least 1, not []"),
        ("dashboard: {charts: [3]}", "charts[0]: must be a string, not 3"),
        ("dashboard: {charts: all}", "charts: must be a list of at least 1, not 'all'"),
        ("dashboard: {refresh_rate: .nan}", "refresh_rate: must be a finite number, not nan"),
        ("dashboard: {refresh_rate: 2026-13-45}", "is no valid YAML: month must be in 1..12"),
    ],
)
def test_a_wrong_file_is_told(config, text, words):
    assert words in "\n".join(problems(config(text)))


MERGES = ["a0: &a0 {theme: dark}", *(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 8))]
LISTS = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12))]


@pytest.mark.parametrize(
    "section",
    [
        "dashboard: {<<: *a7}",  # 9**7 merges: ten seconds and more, were they made
        "dashboard: *a7",
        "dashboard: {theme: *a7}",
        "dashboard: {charts: [&m memory, *m]}",
        "dashboard: &d {theme: *d}",
    ],
)
@pytest.mark.parametrize("lines", [MERGES, LISTS])
def test_a_section_that_unfolds_without_end_is_refused_unbuilt(config, lines, section):
    file = config("\n".join([*lines, section]))
    began = time.process_time()
    said = "\n".join(problems(file))
    assert time.process_time() - began < 1
    assert "uses an alias (*name) or a merge key (<<): write the settings out" in said
    assert len(said) < 500


def test_sections_of_other_tools_may_hold_what_they_like(config):
    began = time.process_time()
    settings = load_settings(
        config("\n".join([*MERGES, "m: !other {of: 2026-13-45}", "? *a7\n: x", "dashboard: {theme: light}"]))
    )
    assert time.process_time() - began < 1
    assert settings.theme == "light"


def test_a_file_that_is_too_long_is_refused_unread(config):
    fits = "dashboard: {theme: light}\n#".ljust(64 * 1024, "x")
    assert load_settings(config(fits)).theme == "light"
    assert "more than 64 kB" in "\n".join(problems(config(fits + "x")))


def test_a_file_that_is_no_text_is_told(tmp_path):
    file = tmp_path / "neural_config.yaml"
    file.write_bytes(b"\xff\xfe\x00dashboard")
    assert "no text in UTF-8" in "\n".join(problems(file))
    assert "cannot be read" in "\n".join(problems(tmp_path))


def test_without_yaml_the_extra_is_named(config, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[dashboard\]'"):
        load_settings(config(DOCUMENTED))


def test_a_theme_of_the_command_line_goes_before_the_files(config, tmp_path, monkeypatch):
    file = config(DOCUMENTED)
    assert load_settings(file, theme="light").theme == "light"
    assert load_settings(file, theme="light").max_history == 1000
    monkeypatch.chdir(tmp_path / "..")
    assert load_settings(theme="dark") == DashboardSettings(theme="dark")
