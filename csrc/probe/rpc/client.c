/* SPDX-License-Identifier: MIT */
#include "rpc/client.c"

#include "probe/checks.h"

const char *kw_client_fault(const kw_client *client) {
  if (kw_session_account(client->session)->held != kw_session_charge(client->session))
    return "the account is not charged for what the connection holds";
  return kw_session_fault(client->session);
}
