/* SPDX-License-Identifier: MIT
 *
 * write_answer: the message that answers a long write. Its records are encoded already, as fields in chains: the chains
 * become parts of the message, and are not copied. For this folder only.
 */
#ifndef KW_RPC_WRITE_ANSWER_H
#define KW_RPC_WRITE_ANSWER_H

#include "model/reply.h"

/* Returns the size of the message without its header, in bytes. Sets the sizes of the reply and of all that it has. */
size_t kw_write_answer_measure(kw_reply *reply);

/* Adds the message of a reply that was measured, without its header, to `out`. Takes the encoded records. Returns false
 * if memory is short; a part of the message may have been added then. */
bool kw_write_answer_add(kw_chain *out, const kw_reply *reply);

#endif
