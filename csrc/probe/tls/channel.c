/* SPDX-License-Identifier: MIT */
#include "tls/channel.c"

#include "probe/tls.h"

SSL *kw_tls_channel_ssl(kw_tls_channel *channel) {
  return channel->ssl;
}
