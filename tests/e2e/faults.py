"""The faults of OPS-1 and the tests that prove them: fault -> state -> ``path::test``.

Law: ``NAMES`` is the contract's list; a row may name tests of any file, so that nothing is proved
twice, and ``test_faults.py`` holds every name to a test that exists.
"""

from __future__ import annotations

from collections.abc import Mapping

NAMES = (
    "SIGTERM",
    "SIGHUP",
    "SIGTSTP and SIGCONT",
    "Ctrl-C once",
    "Ctrl-C twice",
    "Ctrl-C three times",
    "full disk",
    "read-only home",
    "missing home",
    "second process",
    "locked session",
    "truncated session",
    "garbage session",
    "zero-byte session",
    "newer session",
    "clock jumps of 400 days",
    "DNS",
    "TLS",
    "proxy",
    "refused connection",
    "429 in seconds",
    "429 as a date",
    "429 without Retry-After",
    "429 absurd",
    "401",
    "403",
    "404",
    "413",
    "500",
    "502 with HTML",
    "529",
    "drop at any byte",
    "garbled stream",
    "endless stream",
    "silent stream",
    "ping-only stream",
    "closed stdin",
    "closed stdout",
    "no TTY",
    "TERM=dumb",
    "windows of 1x1 to 500x200",
    "resizing in mid-stream",
    "LC_ALL=C",
    "odd file names",
    "deleted working directory",
    "file changed since it was read",
    "daemon that keeps the output open",
    "tool that ignores SIGTERM",
    "tool that stops itself",
    "one call for ever",
)

_E2E = "tests/e2e/"
_HERE = _E2E + "test_faults.py::"
_ONE_SHOT = _E2E + "test_one_shot_faults.py::"
_ENDINGS = _E2E + "test_chat_endings.py::"
_KEYS = _E2E + "test_chat_ctrl_c.py::"
_ADVERSARY = _E2E + "test_adversary_chat.py::"
_LOOP = "tests/repl/test_loop.py::"
_HTTP = "tests/wire/test_http.py::"
_STATUS = "tests/providers/test_conformance.py::test_a_status_becomes_a_typed_error"
_REFUSED = (
    _E2E + "test_one_shot_limits.py::test_a_refused_request_has_its_code_and_says_who_refused"
)
_FAILS = _HERE + "test_a_server_that_keeps_failing_is_code_75"
_UNUSABLE = _HERE + "test_a_session_file_that_cannot_be_used_is_one_line_and_stays_as_it_is"
_NETWORK = _HERE + "test_a_network_that_does_not_work_is_named_and_the_session_goes_on"
_THREE = _HERE + "test_ctrl_c_three_times_at_once_ends_what_runs_and_never_breaks"
_TERM = _HERE + "test_sigterm_ends_the_chat_in_every_state"
_WINDOW = _ENDINGS + "test_a_closed_window_ends_the_chat_and_everything_it_runs"

FAULTS: Mapping[str, Mapping[str, str]] = {
    "SIGTERM": {
        "starting": _ONE_SHOT + "test_a_signal_while_starting_ends_without_a_traceback",
        "idle": _ENDINGS + "test_sigterm_ends_the_chat_with_143_and_the_terminal_restored",
        "streaming": _ONE_SHOT + "test_a_signal_in_mid_stream_ends_with_a_result_and_its_code",
        "tool": _TERM,
        "approval": _TERM,
        "waiting to retry": _TERM,
        "compaction": _TERM,
        "picker": _ADVERSARY + "test_a_signal_ends_the_chat_while_a_session_is_being_chosen",
        "editor or pager": _ADVERSARY
        + "test_a_signal_ends_the_chat_while_a_program_has_the_terminal",
        "messages on stdin": _E2E
        + "test_stream_input.py::test_a_signal_ends_the_run_with_one_result_for_each_turn",
        "hook": _E2E + "test_hooks.py::test_a_signal_stops_a_hook_with_all_that_it_started",
        "reader that does not read": "tests/headless/test_signals.py"
        "::test_a_signal_ends_a_run_whose_reader_does_not_read",
    },
    "SIGHUP": {
        "idle": _WINDOW,
        "streaming": _WINDOW,
        "tool": _WINDOW,
        "approval": _WINDOW,
        "picker": _ADVERSARY + "test_a_window_closed_while_a_session_is_being_chosen_ends_the_chat",
        "one shot": _ONE_SHOT
        + "test_a_signal_in_mid_tool_kills_the_tool_and_keeps_the_history_balanced",
    },
    "SIGTSTP and SIGCONT": {
        "idle": _ENDINGS + "test_suspend_and_resume_give_the_terminal_back_and_take_it_again",
        "working": _E2E + "test_chat_queue.py"
        "::test_ctrl_z_while_the_agent_works_gives_the_terminal_back_and_takes_it_again",
        "one shot": _HERE + "test_a_run_that_is_stopped_and_continued_goes_on",
    },
    "Ctrl-C once": {
        "starting": "tests/cli/test_entry.py"
        "::test_ctrl_c_while_the_program_is_still_loading_is_130_without_a_traceback",
        "typed text": _KEYS + "test_ctrl_c_clears_what_is_typed_and_ctrl_d_does_not_leave_from_it",
        "streaming": _KEYS + "test_a_cancel_in_mid_stream_keeps_the_chat_and_the_history_clean",
        "tool": _KEYS + "test_ctrl_c_in_mid_tool_kills_it_and_tells_the_model",
        "approval": _KEYS + "test_ctrl_c_at_an_approval_is_no_and_cancel",
        "waiting to retry": _LOOP + "test_a_retry_wait_is_shown_and_can_be_cancelled",
        "compaction": _E2E
        + "test_compaction.py::test_ctrl_c_stops_a_summary_that_was_asked_for_by_hand",
        "picker": _ADVERSARY + "test_sigint_leaves_the_list_of_sessions_and_keeps_the_chat",
        "terminal that takes nothing": _ADVERSARY
        + "test_ctrl_c_is_heard_while_the_terminal_takes_nothing",
        "one shot": _ONE_SHOT + "test_a_signal_in_mid_stream_ends_with_a_result_and_its_code",
        "list of models": "tests/cli/test_models.py"
        "::test_ctrl_c_ends_the_wait_for_a_server_that_says_nothing",
    },
    "Ctrl-C twice": {
        "idle": _KEYS + "test_ctrl_c_at_the_empty_prompt_says_how_to_leave_and_the_second_leaves",
        "tool": _KEYS + "test_ctrl_c_twice_stops_a_tool_that_ignores_signals",
        "cancelling": _LOOP + "test_a_second_ctrl_c_during_a_cancel_forces",
        "dumb terminal": _LOOP
        + "test_ctrl_c_at_the_prompt_of_a_dumb_terminal_clears_then_hints_then_leaves",
    },
    "Ctrl-C three times": {
        "streaming": _THREE,
        "approval": _THREE,
        "tool": _THREE,
        "waiting to retry": _THREE,
        "compaction": _THREE,
        "closing": _ADVERSARY + "test_signals_while_the_chat_is_ending_change_nothing",
        "one shot": _ONE_SHOT + "test_many_signals_are_one_cancel",
    },
    "full disk": {
        "first prompt": "tests/store/test_sqlite.py"
        "::test_a_full_disk_at_the_first_prompt_leaves_no_file_and_one_clear_error",
        "in mid-session": _HERE
        + "test_a_disk_that_fills_up_in_mid_session_is_code_74_and_nothing_is_lost",
        "behind stdout": _ONE_SHOT
        + "test_a_full_disk_behind_stdout_is_an_error_and_not_a_traceback",
    },
    "read-only home": {
        "every command": _E2E + "test_odd_places.py::test_a_home_that_cannot_be_written",
        "one shot": _ONE_SHOT + "test_a_home_that_cannot_be_written_is_one_line_and_code_74",
    },
    "missing home": {
        "every command": _E2E + "test_odd_places.py::test_no_home_to_speak_of",
        "one shot": _ONE_SHOT + "test_without_home_it_works_where_our_own_is_given",
    },
    "second process": {
        "one shot": _ONE_SHOT + "test_a_session_in_use_names_the_process_that_has_it",
        "chat": _HERE + "test_a_second_chat_beside_the_first_and_resizing_to_nothing",
    },
    "locked session": {
        "live owner": "tests/store/test_lock.py"
        "::test_a_session_of_a_live_process_is_refused_with_its_name",
        "dead owner": "tests/store/test_lock.py"
        "::test_a_dead_owner_never_blocks_and_its_turn_counts_as_crashed",
    },
    "truncated session": {
        "opening": _UNUSABLE,
        "wherever": "tests/store/test_faults.py"
        "::test_a_truncated_file_is_damaged_wherever_it_was_cut",
        "chat": _ADVERSARY
        + "test_a_damaged_session_that_nobody_asked_for_is_named_and_does_not_stand_in_the_way",
    },
    "garbage session": {"opening": _UNUSABLE},
    "zero-byte session": {"opening": _UNUSABLE},
    "newer session": {
        "opening": _UNUSABLE,
        "untouched": "tests/store/test_schema_migrations.py"
        "::test_a_file_of_a_newer_version_is_refused_and_untouched",
    },
    "clock jumps of 400 days": {
        "between runs": _HERE + "test_a_clock_that_jumps_changes_no_session",
        "waiting to retry": "tests/engine/test_sample_retries.py::test_a_clock_that_is_set_moves_no_wait",
        "stored times": "tests/store/test_sqlite.py"
        "::test_times_beyond_any_clock_are_read_as_the_nearest_it_can_show",
    },
    "DNS": {"one shot": _NETWORK, "typed": _HTTP + "test_an_unknown_host_is_named"},
    "TLS": {
        "one shot": _NETWORK,
        "plain server": _HTTP + "test_a_plain_server_spoken_to_with_tls_is_a_tls_error",
        "certificate": _HTTP
        + "test_an_unknown_certificate_is_refused_and_ssl_cert_file_can_name_it",
    },
    "proxy": {
        "one shot": _NETWORK,
        "refuses": _HTTP + "test_a_proxy_that_refuses_is_named_without_its_password",
        "denies": _HTTP + "test_a_proxy_that_denies_the_tunnel_is_a_network_error",
    },
    "refused connection": {
        "one shot": _ONE_SHOT + "test_an_unreachable_server_is_named_with_its_host",
        "typed": _HTTP + "test_a_refused_connection_asks_whether_the_server_runs",
        "chat": _E2E + "test_chat_pty.py::test_a_failed_request_is_a_line_and_the_chat_goes_on",
    },
    "429 in seconds": {
        "one shot": _ONE_SHOT
        + "test_a_rate_limit_that_lasts_ends_the_run_and_says_when_to_come_back",
        "chat": _E2E + "test_chat_long_wait.py::test_the_wait_is_offered_shown_and_ended_by_a_key",
    },
    "429 as a date": {
        "one shot": _ONE_SHOT
        + "test_a_rate_limit_that_lasts_ends_the_run_and_says_when_to_come_back"
    },
    "429 without Retry-After": {"typed": _STATUS},
    "429 absurd": {"one shot": _ONE_SHOT + "test_an_absurd_retry_after_is_not_believed"},
    "401": {"one shot": _REFUSED, "typed": _STATUS},
    "403": {"one shot": _REFUSED, "typed": _STATUS},
    "404": {"one shot": _REFUSED, "typed": _STATUS},
    "413": {"one shot": _REFUSED, "typed": _STATUS},
    "500": {"one shot": _FAILS, "typed": _STATUS},
    "502 with HTML": {"one shot": _FAILS, "typed": _STATUS},
    "529": {"one shot": _FAILS, "typed": _STATUS},
    "drop at any byte": {
        "one shot": _HERE + "test_a_drop_at_any_byte_is_tried_again_or_ends_the_turn",
        "after output": _ONE_SHOT
        + "test_a_stream_that_breaks_after_output_ends_the_turn_and_keeps_the_session",
        "each place": "tests/providers/test_conformance.py"
        "::test_a_dropped_connection_is_a_network_error",
    },
    "garbled stream": {
        "one shot": _ONE_SHOT + "test_garbage_in_a_stream_is_no_traceback",
        "any bytes": "tests/wire/test_sse.py::test_no_bytes_whatever_crash_the_decoder",
    },
    "endless stream": {
        "line": "tests/security/test_bounds.py::test_a_stream_without_bounds_is_ended_in_bounded_memory",
        "comment": "tests/wire/test_sse.py"
        "::test_an_endless_comment_takes_no_memory_and_ends_nothing",
    },
    "silent stream": {
        "sampling": "tests/engine/test_sample.py"
        "::test_ninety_seconds_without_a_chunk_is_a_stall_and_reconnects",
        "one shot": _ONE_SHOT + "test_a_signal_in_mid_stream_ends_with_a_result_and_its_code",
    },
    "ping-only stream": {
        "one shot": _HERE + "test_a_stream_of_keep_alives_can_be_ended",
        "no chunk": "tests/providers/test_conformance.py::test_keep_alives_are_no_events",
    },
    "closed stdin": {"one shot": _ONE_SHOT + "test_closed_standard_streams_do_no_harm"},
    "closed stdout": {
        "one shot": _ONE_SHOT + "test_closed_standard_streams_do_no_harm",
        "reader leaves": _E2E
        + "test_contract.py::test_a_reader_that_has_gone_is_a_quiet_end_on_every_path",
    },
    "no TTY": {
        "chat": _E2E + "test_odd_places.py::test_a_chat_without_a_terminal_and_without_a_prompt",
        "approval": "tests/cli/test_run.py"
        "::test_an_approval_that_nobody_can_give_is_refused_at_once_and_told",
    },
    "TERM=dumb": {
        "chat": _LOOP + "test_a_dumb_terminal_gets_plain_text",
        "signals": _LOOP + "test_signals_reach_the_prompt_of_a_dumb_terminal",
    },
    "windows of 1x1 to 500x200": {
        "working": "tests/repl/test_live_input.py::test_any_window_is_survived",
        "streaming": _HERE + "test_a_second_chat_beside_the_first_and_resizing_to_nothing",
    },
    "resizing in mid-stream": {
        "chat": _E2E + "test_chat_pty.py::test_resizing_in_mid_stream_loses_no_text",
        "reflowing terminal": "tests/repl/test_in_tmux.py"
        "::test_a_window_that_is_dragged_in_mid_stream_loses_no_word",
    },
    "LC_ALL=C": {
        "every command": _E2E + "test_odd_places.py::test_twenty_columns_and_the_c_locale",
        "one shot": _ONE_SHOT + "test_the_c_locale_is_no_reason_to_fail",
    },
    "odd file names": {
        "directory and file": _HERE + "test_directories_of_any_name_are_worked_in",
        "no bytes for it": _E2E + "test_odd_places.py"
        "::test_a_name_that_the_locale_has_no_bytes_for_is_the_models_error_not_ours",
    },
    "deleted working directory": {
        "starting": _E2E + "test_odd_places.py::test_a_deleted_working_directory",
        "in mid-session": _HERE
        + "test_a_working_directory_that_goes_away_in_mid_session_is_told_to_the_model",
    },
    "file changed since it was read": {
        "edit": "tests/tools/test_edit_file.py"
        "::test_a_file_that_changed_since_it_was_read_is_not_edited",
        "approval": "tests/security/test_paths.py"
        "::test_a_file_that_changes_before_the_yes_is_not_changed_unseen",
    },
    "daemon that keeps the output open": {
        "tool": "tests/process/test_run.py"
        "::test_a_daemon_that_keeps_the_output_open_does_not_hang_and_lives_until_close",
        "one shot": _HERE + "test_a_daemon_and_a_tool_that_stops_itself_leave_no_process",
    },
    "tool that ignores SIGTERM": {
        "tool": "tests/process/test_run.py"
        "::test_a_second_interrupt_kills_what_ignores_sigterm_without_the_grace",
        "one shot": _HERE + "test_a_daemon_and_a_tool_that_stops_itself_leave_no_process",
    },
    "tool that stops itself": {
        "cancel": "tests/process/test_run.py"
        "::test_a_command_that_stopped_itself_or_its_guard_is_killed_all_the_same",
        "one shot": _HERE + "test_a_daemon_and_a_tool_that_stops_itself_leave_no_process",
    },
    "one call for ever": {
        "one shot": _HERE
        + "test_a_model_that_repeats_one_call_for_ever_is_stopped_with_the_reason",
        "circles": "tests/engine/test_limits_repeats.py"
        "::test_a_turn_that_goes_in_circles_is_told_so_and_then_ends_with_the_reason",
    },
}
