"""radish.sglang_sessions - SGLang's sessions of its unified cache (--enable-session-radix-cache).

What an open session's last finished request refers to is evicted after what nobody refers to: libradish's
session tags (session.h). SGLang's generation of a session is libradish's number of it, which is another one
when a session of that name is opened again."""


class WithSessions:
    MOST_SESSIONS = 65535  # open at one time; those beyond go untagged

    @property
    def session_refs(self):
        return self

    def open_radix_session(self, session_id):
        self.release_radix_session(session_id)
        self._sessions[session_id] = self.core.session_open() or 0
        return self._sessions[session_id]

    def ensure_session_generation(self, session_id):
        if session_id in self._sessions:
            return self._sessions[session_id]
        return self.open_radix_session(session_id)

    def release_radix_session(self, session_id):
        number = self._sessions.pop(session_id, 0)
        if number:
            self.core.session_close(number)
        return 0

    def _session_of(self, req):
        """The number of the request's session, 0: none, a streaming one, or one that was closed meanwhile."""
        if not self.enable_session_radix_cache or (req.session is not None and req.session.streaming):
            return 0
        name = req.session_id if req.session_id is not None or req.session is None else req.session.session_id
        number = self._sessions.get(name, 0)
        return number if number == req.session_generation else 0

    def _session_of_finished(self, req):
        ended_well = self.enable_session_radix_cache and type(req.finished_reason).__name__ not in (
            "NoneType", "FINISH_ABORT")
        return self._session_of(req) if ended_well else 0

    def register_session_ref(self, req):
        number = self._session_of(req)
        if not number:
            return
        tokens = (req.origin_input_ids + req.output_ids)[:req.kv_committed_len]
        found = self.core.match_prefix(tokens, "int64", extra_key=req.extra_key)
        count = found.prefix_tokens
        if count:
            self.core.insert(tokens[:count + self.is_eagle], found.slots, extra_key=req.extra_key, session=number)
