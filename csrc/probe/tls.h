/* SPDX-License-Identifier: MIT
 *
 * tls: a look into channels.
 */
#ifndef KW_PROBE_TLS_H
#define KW_PROBE_TLS_H

#include "tls/channel.h"

/* Returns the SSL of a channel. */
SSL *kw_tls_channel_ssl(kw_tls_channel *channel);

#endif
