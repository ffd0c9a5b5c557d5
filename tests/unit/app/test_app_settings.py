"""Settings: where values come from, which one wins, how a bad one is reported."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from pydantic_settings import BaseSettings
from typer.testing import CliRunner

from app.serve_command import add_serve
from app.settings import (
    Settings,
    SettingsError,
    describe_settings,
    format_duration,
    load_settings,
    parse_duration,
)


def test_flags_win_over_variables_over_the_file_over_defaults(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("workers: 3\nadmissionPort: 1001\nhealth_port: 1002\nlog-level: debug\n")
    environ = {"AIMA_WORKERS": "4", "AIMA_ADMISSION_PORT": "2001"}
    settings, warnings = load_settings({"workers": "5", "drain": None}, config=path, environ=environ)
    assert (settings.workers, settings.admission_port, settings.health_port) == (5, 2001, 1002)
    assert (settings.log_level, settings.drain) == ("debug", timedelta(seconds=5))
    assert warnings == []


def test_the_file_can_be_named_by_a_variable(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("workers: 3\n")
    assert load_settings(environ={"AIMA_CONFIG": str(tmp_path / "s.yaml")})[0].workers == 3


def test_only_its_own_setting_chooses_the_address() -> None:
    assert load_settings(environ={"AIMA_BIND_ADDRESS": "127.65.0.9"})[0].bind_address == "127.65.0.9"
    assert load_settings(environ={"POD_IP": "127.65.0.9"})[0].bind_address == "::", "a port-forward needs localhost"
    assert load_settings(environ={})[0].bind_address == "::"


def test_it_is_the_library_that_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    assert issubclass(Settings, BaseSettings)
    monkeypatch.setenv("AIMA_WORKERS", "4")
    assert Settings().workers == 16, "made directly, the environment says nothing"
    assert load_settings()[0].workers == 4
    assert load_settings(environ={})[0].workers == 16, "the mapping counts, not the process's own environment"
    assert Settings().workers == 16, "and nothing of a reading stays"


def test_only_the_documented_spelling_of_a_variable_counts() -> None:
    settings, warnings = load_settings(environ={"aima_workers": "3", "AIMA_workers": "4"})
    assert settings.workers == 16
    assert warnings == ['unknown variable "AIMA_workers" is ignored']


def test_an_empty_variable_is_a_value() -> None:
    assert (
        load_settings(environ={"AIMA_VALIDATING_WEBHOOK_CONFIGURATIONS": ""})[0].validating_webhook_configurations == ()
    )
    with pytest.raises(SettingsError, match="from variable AIMA_WORKERS"):
        load_settings(environ={"AIMA_WORKERS": ""})


def test_of_a_setting_that_two_name_the_winner_is_blamed(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("workers: x\ndrain:\n")
    with pytest.raises(SettingsError) as caught:
        load_settings(config=tmp_path / "s.yaml", environ={"AIMA_WORKERS": '{"a": 1}'})
    text = "\n".join(caught.value.lines)
    assert '--workers (from variable AIMA_WORKERS): "{"a": 1}"' in text
    assert f'--drain (from file {tmp_path / "s.yaml"}, key "drain"): "None"' in text


def test_lists_come_from_text_and_from_yaml(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("namespaces: [a, b]\n")
    assert load_settings(config=tmp_path / "s.yaml", environ={})[0].namespaces == ("a", "b")
    assert load_settings(environ={"AIMA_NAMESPACES": " a, b ,"})[0].namespaces == ("a", "b")
    with pytest.raises(SettingsError, match=r'"\["a"\]"'):  # never read as JSON
        load_settings(environ={"AIMA_CONTROLLERS": '["a"]'})
    assert load_settings(environ={"AIMA_CONTROLLERS": "service,artifact"})[0].controllers == ("service", "artifact")


cli = typer.Typer()
add_serve(cli)

BAD = {
    "no controller": (
        {"controllers": "services"},
        'no controller has the name "services"; available: service, artifact, ',
    ),
    "no number": ({"workers": "many"}, '--workers (from flag --workers): "many": input should be a valid integer'),
    "too small": ({"workers": "0"}, '--workers (from flag --workers): "0": input should be greater than or equal to 1'),
    "no duration": (
        {"drain": "soon"},
        '"soon": is not a valid duration (write 30s, 15m, 1h30m, or a number of seconds)',
    ),
    "below its least": ({"refresh_interval": "4s"}, '"4s": input should be greater than or equal to 5 seconds'),
    "no choice": ({"deployment_mode": "Knative"}, "input should be 'Standard' or 'RawDeployment'"),
    "no namespace": ({"namespaces": "Team_A"}, '"Team_A" is not a valid namespace name'),
    "nothing runs": ({"admission": False, "reconciler": False}, "both off, so nothing would run"),
    "a lease that cannot be kept": ({"lease_duration": "5s"}, "lease_duration must be longer than"),
    "a roll that cannot happen": ({"max_unavailable": "0"}, "no rollout could proceed"),
    "fractions": ({"refresh_interval": "5.5s"}, "whole number of seconds"),
}


@pytest.mark.parametrize(("flags", "words"), BAD.values(), ids=BAD)
def test_a_bad_value_is_named_with_its_origin(flags: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(flags, environ={})
    assert len(caught.value.lines) == 1
    assert words in caught.value.lines[0]


def test_all_bad_values_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("workesr: 3\nport: 1\ndrain: x\n")
    with pytest.raises(SettingsError) as caught:
        load_settings({"workers": "x"}, config=tmp_path / "s.yaml", environ={"AIMA_IMAGE": ""})
    text = "\n".join(caught.value.lines)
    for words in ('unknown key "workesr"', 'unknown key "port"', 's.yaml, key "drain"', "--workers", "AIMA_IMAGE"):
        assert words in text


@pytest.mark.parametrize(
    ("content", "words"), [("a: [", "is not valid YAML"), ("- a", "keys and values"), (None, "No such")]
)
def test_a_bad_file_is_named(tmp_path: Path, content: str | None, words: str) -> None:
    path = tmp_path / "s.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingsError, match=words):
        load_settings(config=path, environ={})


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("# nothing\n")
    assert load_settings(config=tmp_path / "s.yaml", environ={})[0] == load_settings(environ={})[0]


def test_an_unknown_variable_causes_a_warning() -> None:
    assert load_settings(environ={"AIMA_WORKRES": "3"})[1] == ['unknown variable "AIMA_WORKRES" is ignored']


@given(st.integers(0, 10**10))
def test_durations_read_back_as_they_are_shown(milliseconds: int) -> None:
    value = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(value)) == value


@pytest.mark.parametrize("value", ["86400000000000", "9" * 400, "1000000000d", 1e300, float("inf"), float("nan")])
def test_a_duration_beyond_all_clocks_is_a_clear_no(value: object) -> None:
    with pytest.raises(ValueError, match="is not a valid duration"):
        parse_duration(value)


@given(st.text())
def test_any_text_is_a_duration_or_a_clear_no(text: str) -> None:
    try:
        value = parse_duration(text)
    except ValueError as error:
        value = timedelta(0) if "is not a valid duration" in str(error) else None
    assert isinstance(value, timedelta)


def test_every_setting_is_described_and_has_a_group() -> None:
    infos = list(describe_settings())
    assert {info.name for info in infos} == set(Settings.model_fields)
    for info in infos:
        assert len(info.description) > 10, info.name
        assert info.group, info.name


def test_reconcile_settings_carry_over() -> None:
    settings, _ = load_settings({"refresh_interval": "7s", "image": "x:1", "max_surge": "2"}, environ={})
    plain = settings.reconcile_settings()
    assert (plain.refresh_interval, plain.image, plain.max_surge) == (timedelta(seconds=7), "x:1", 2)


def test_the_command_line_says_what_is_wrong_and_exits_with_2() -> None:
    result = CliRunner().invoke(cli, ["--workers", "many", "--drain", "soon"], env={"AIMA_CONFIG": ""})
    assert result.exit_code == 2
    assert result.stderr.count("error: ") == 2
    assert "Traceback" not in result.output


def test_the_command_line_knows_every_setting() -> None:
    result = CliRunner().invoke(cli, ["--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    assert result.exit_code == 0
    for info in describe_settings():
        assert info.flag in result.output


def test_settings_can_be_checked_without_serving() -> None:
    result = CliRunner().invoke(cli, ["--check", "--no-reconciler", "--refresh-interval", "1m"])
    assert (result.exit_code, result.output) == (0, "the settings are valid\n")
