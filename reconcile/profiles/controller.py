"""The shell of AIMProfile and AIMClusterProfile: observes from caches, lets `decide` decide, carries it out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from api.kinds import AIM_PROFILE, NODE, Kind
from api.view import Json
from kube.cache import Key
from kube.engine import Watch, keys_of_both
from reconcile.controllers import Tools, keys, node_labels, watch_nodes
from reconcile.profiles.decide import ProfileFacts, decide
from rules.validate import judge_stored


class ProfileController:
    """Reports where profiles of one kind can run."""

    def __init__(self, tools: Tools, kind: Kind) -> None:
        """Take the shared tools and the kind: AIMProfile or AIMClusterProfile."""
        self._tools = tools
        self._kind = kind
        self.name = "profile" if kind == AIM_PROFILE else "cluster-profile"

    @property
    def watches(self) -> Sequence[Watch]:
        """The profiles, and nodes whose labels change."""
        informers = self._tools.informers
        own = Watch(informers[self._kind], keys_of_both(lambda profile: keys([profile])))
        return (own, *watch_nodes(informers.get(NODE), lambda: keys(informers[self._kind].items())))

    async def reconcile(self, key: Key) -> timedelta | None:
        """Make one pass over a profile."""
        tools = self._tools
        profile: Json | None = tools.find(self._kind, *key)
        if profile is None:
            return None
        seen = ProfileFacts(
            profile,
            tools.now(),
            nodes=node_labels(tools),
            errors=tuple(judge_stored(self._kind, profile, tools.world).errors),
        )
        return await tools.shell.carry_out(self._kind, profile, decide(seen))
