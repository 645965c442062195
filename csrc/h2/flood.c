/* SPDX-License-Identifier: MIT
 *
 * flood: PING and SETTINGS frames that are too frequent, and streams whose numbers collide.
 *
 * They all cost the receiver more than the sender. A peer that sends too many of them gets GOAWAY with
 * ENHANCE_YOUR_CALM, and the connection ends. nghttp2 itself refuses floods of RST_STREAM and CONTINUATION frames, and
 * of frames that demand an answer.
 */
#include "h2/state.h"

#define PING_STRIKES 2        /* early PINGs that are tolerated */
#define SETTINGS_BURST 500000 /* streams that SETTINGS frames may touch at once, about 10 ms... */
#define SETTINGS_RATE 1000    /* ...and then in each millisecond */
#define SETTINGS_SHARE 20000  /* the burst of a session while all together exceed SETTINGS_BURST */
#define CROWD_SPARE 256       /* streams that a crowd may have beyond its share */

/* Ends the session with GOAWAY and this text, but only after the bytes that are being fed: later requests in these
 * bytes are processed, so the GOAWAY must not report them as unprocessed. */
static void end_calmly(kw_session *session, const char *text) {
  session->last_words = text;
}

void kw_flood_end(kw_session *session) {
  const char *text = session->last_words;
  int32_t last = nghttp2_session_get_last_proc_stream_id(session->h2);
  if (text == NULL) return;
  kw_session_check(session, nghttp2_submit_goaway(session->h2, NGHTTP2_FLAG_NONE, last,
                                                  NGHTTP2_ENHANCE_YOUR_CALM, (const uint8_t *)text,
                                                  strlen(text)));
}

/* Like in gRPC, a PING is a strike if it arrives too early after the previous one. HEADERS or DATA that were sent
 * between the two clear the strikes. */
void kw_flood_note_ping(kw_session *session) {
  int64_t least =
      session->count > 0 ? session->options.ping_min_ms : session->options.ping_idle_min_ms;
  if (session->sent_since_ping) {
    session->sent_since_ping = false;
    session->ping_strikes = 0;
  } else if (session->last_ping != KW_SESSION_NEVER && session->now - session->last_ping < least) {
    session->ping_strikes++;
  }
  session->last_ping = session->now;
  if (session->ping_strikes <= PING_STRIKES) return;
  kw_session_note_why(session, "the client sends PING frames too often");
  end_calmly(session, "too_many_pings");
}

/* Adds units to a meter, which forgets SETTINGS_RATE units in each millisecond. Returns the new number of units. */
static int64_t take(kw_meter *meter, int64_t now, int64_t units) {
  int64_t left = meter->used - (now - meter->at) * SETTINGS_RATE;
  *meter = (kw_meter){.used = (left > 0 ? left : 0) + units, .at = now};
  return meter->used;
}

/* Each SETTINGS frame makes nghttp2 visit all streams, so it costs one unit for each stream and one for itself. While
 * all sessions together use too many units, a session ends already if it uses more than its share. */
int kw_flood_note_settings(kw_session *session) {
  kw_meter *all = session->options.settings;
  int64_t units = (int64_t)session->count + 1;
  int64_t own = take(&session->settings, session->now, units);
  bool is_crowded = all != NULL && take(all, session->now, units) > SETTINGS_BURST;
  if (own <= (is_crowded ? SETTINGS_SHARE : SETTINGS_BURST)) return 0;
  kw_session_note_why(session, "the %s sends SETTINGS frames too often", kw_session_peer(session));
  end_calmly(session, "too_many_settings");
  return NGHTTP2_ERR_CALLBACK_FAILURE;
}

/* nghttp2's table of streams has a hash without a seed: it multiplies the number of a stream, and the upper bits of the
 * product are the slot. Consecutive numbers spread evenly. An attacker can choose numbers that collide, and every
 * frame then walks over all these streams. A crowd is the set of streams in one part of the table. */
static uint16_t *crowd_of(kw_session *session, int32_t id) {
  return &session->crowds[(uint32_t)id * UINT32_C(2654435769) / (UINT32_MAX / KW_CROWDS + 1)];
}

int kw_flood_note_stream(kw_session *session, int32_t id) {
  size_t share = session->count / KW_CROWDS;
  if (++*crowd_of(session, id) <= share + share / 3 + CROWD_SPARE) return 0;
  kw_session_note_why(session, "the client opens streams whose numbers collide");
  end_calmly(session, "too_many_collisions");
  return NGHTTP2_ERR_CALLBACK_FAILURE;
}

void kw_flood_forget_stream(kw_session *session, int32_t id) {
  --*crowd_of(session, id);
}
