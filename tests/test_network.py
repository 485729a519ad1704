"""By which interface hosts reach each other."""

import socket

import pytest

from helpers import network
from helpers.errors import UserError

LO = {"lo": ("127.0.0.1", "255.0.0.0")}
MASK = "255.255.255.0"
BRIDGE = {"docker0": ("172.17.0.1", "255.255.0.0")}


def test_one_host_talks_to_itself_alone() -> None:
    of = LO | {"eth0": ("10.0.0.1", MASK)}
    assert network.common({"a": of}, "a") == {"a": ("lo", "127.0.0.1")}


def test_a_network_that_all_share_is_found_whatever_it_is_called() -> None:
    hosts = {
        "a": LO | BRIDGE | {"eth0": ("10.0.0.1", MASK)},
        "b": LO | BRIDGE | {"ens3": ("10.0.0.2", MASK), "eth0": ("192.168.7.2", MASK)},
    }
    assert network.common(hosts, "a") == {"a": ("eth0", "10.0.0.1"), "b": ("ens3", "10.0.0.2")}


def test_of_several_it_is_the_one_that_the_first_hosts_name_stands_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts = {
        name: LO | {"eth0": (f"10.0.0.{n}", MASK), "ib0": (f"10.9.0.{n}", MASK)}
        for n, name in enumerate("ab", start=1)
    }
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "10.9.0.1")
    assert network.common(hosts, "a")["b"] == ("ib0", "10.9.0.2")
    assert network.common(hosts, "a", named="eth0")["b"] == ("eth0", "10.0.0.2")


def test_without_a_common_network_none_falls_back_to_loopback() -> None:
    hosts = {"a": LO | BRIDGE, "b": LO | BRIDGE}
    with pytest.raises(
        UserError, match="a, b share no network by an interface of each: name an interface"
    ):
        network.common(hosts, "a")
    apart = {"a": LO | {"eth0": ("10.0.0.1", MASK)}, "b": LO | {"eth0": ("10.1.0.1", MASK)}}
    with pytest.raises(UserError, match="by the interface ib0 of each"):
        network.common(apart, "a", named="ib0")
