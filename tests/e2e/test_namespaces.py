#!/usr/bin/env python3
"""test_namespaces.py - many users, each with a cache_salt of its own, are found again.

300 of them (more than the 256 that were the limit once, when nobody found anything), 2,000 with
RADISH_TEST_LONG=1."""
import json

from radish_e2e import LONG, TINY, Server, check, run

USERS = 2000 if LONG else 300
TEXT = "A page of the same words for everybody, long enough to be worth a place."


class Users:
    """One connection: hundreds of requests in turn."""

    def __init__(self, server):
        self.connection = server.connect()

    def ask(self, user):
        body = {"text": TEXT, "cache_salt": f"user {user}", "sampling_params": {"max_new_tokens": 1}}
        self.connection.request("POST", "/generate", json.dumps(body),
                                {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        answer = response.read()
        check(response.status == 200, response.status, answer)
        return json.loads(answer)["meta_info"]


def test_every_user_of_a_pool_that_holds_them_is_found():
    with Server(TINY, "--max-total-tokens", 64 * USERS, "--threads", 1) as s:
        users = Users(s)
        for user in range(USERS):
            check(users.ask(user)["cached_tokens"] == 0, user)
        for user in range(USERS):
            meta = users.ask(user)
            check(meta["cached_tokens"] == meta["prompt_tokens"] - 1, user, meta)
        figures = s.figures()
        check(figures["namespaces"] == USERS and not figures["namespaces_given_up"], figures)
        check(figures["max_namespaces"] == min(64 * USERS, 65536), figures)


def test_a_limit_gives_up_the_least_useful_and_counts_it():
    with Server(TINY, "--max-total-tokens", 8192, "--max-namespaces", 8, "--threads", 1) as s:
        users = Users(s)
        found = 0
        for _ in range(4):
            found += sum(users.ask(user)["cached_tokens"] > 0 for user in range(10))
        check(found >= 15, found)  # by last use it would be none of 40
        figures = s.figures()
        check(figures["namespaces"] == 8 == figures["max_namespaces"], figures)
        metrics = s.metrics()
        check('radish_namespaces{model_name="radish-tiny",tier="device"} 8' in metrics, metrics)
        given_up = f'tier="device"}} {figures["namespaces_given_up"]}\n'
        check("radish_namespaces_given_up_total" in metrics and given_up in metrics, metrics)


def test_the_host_has_places_by_its_own_pages():
    """The device holds a few users, the host all of them."""
    with Server(TINY, "--max-total-tokens", 2048, "--page-size", 8, "--threads", 1,
                "--enable-hierarchical-cache", "--hicache-ratio", 16) as s:
        users = Users(s)
        for user in range(300):
            users.ask(user)
        found = sum(users.ask(user)["cached_tokens"] > 0 for user in range(300))
        check(found >= 290, found)
        figures = s.figures()
        check(figures["host_namespaces"] >= 290 and not figures["host_namespaces_given_up"], figures)


if __name__ == "__main__":
    run(globals())
