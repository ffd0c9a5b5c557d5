"""What `dev up --set` becomes."""

import json
from typing import Any

import pytest

from devcluster.chart_values import POD_ADDRESS, is_on, read_value, render_values


def test_settings_reach_the_service_in_the_charts_spelling() -> None:
    values = render_values(
        {"refresh_interval": "5s", "reaper-period": "10s", "workers": "4", "audit": "true"}, service_port=443
    )
    assert values["settings"] == {"refreshInterval": "5s", "reaperPeriod": "10s", "workers": 4}
    assert values["image"] == {"repository": "aim-adapters", "tag": "dev"}
    assert values["service"]["port"] == 443


def test_chart_values_are_set_by_path() -> None:
    values = render_values({"chart.replicas": "1", "chart.webhooks.failurePolicy": "Ignore"}, service_port=8443)
    assert values["replicas"] == 1
    assert values["webhooks"] == {"failurePolicy": "Ignore"}
    assert values["service"] == {"port": 8443}


def test_the_server_listens_on_the_address_of_its_pod() -> None:
    proxy = {"name": "HTTPS_PROXY", "value": "http://proxy.example.org:3128"}
    assert render_values({}, service_port=8443)["extraEnv"] == [POD_ADDRESS]
    given = render_values({"chart.extraEnv": json.dumps([proxy])}, service_port=8443)
    assert given["extraEnv"] == [POD_ADDRESS, proxy]


def test_contradicting_paths() -> None:
    with pytest.raises(ValueError, match="replicas"):
        render_values({"chart.replicas": "1", "chart.replicas.more": "2"}, service_port=443)


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), ("true", True), ("[1]", [1]), ("5s", "5s"), ("", ""), ("01", "01"), ('"5"', "5"), ("null", None)],
)
def test_values(text: str, value: Any) -> None:
    assert read_value(text) == value


@pytest.mark.parametrize(("text", "on"), [("true", True), ("1", True), ("on", True), ("false", False), ("", False)])
def test_switches(text: str, on: bool) -> None:
    assert is_on({"audit": text}, "audit") is on
    assert is_on({}, "audit") is False
