/* SPDX-License-Identifier: MIT
 *
 * ending: the end of a session, and its reason.
 */
#include <stdarg.h>
#include <stdio.h>

#include "h2/state.h"

void kw_session_note_why(kw_session *session, const char *format, ...) {
  va_list args;
  if (session->why[0] != 0) return;
  va_start(args, format);
  vsnprintf(session->why, sizeof session->why, format, args);
  va_end(args);
}

void kw_session_note_broken(kw_session *session) {
  session->is_broken = true;
  kw_session_note_why(session, "the server breaks the rules of HTTP/2");
}

void kw_session_end_without_memory(kw_session *session) {
  kw_session_note_why(session, "not enough memory");
  kw_session_end(session);
}

void kw_session_end(kw_session *session) {
  session->is_over = true;
}
