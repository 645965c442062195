/* SPDX-License-Identifier: MIT
 *
 * object_text: the JSON of an object of Kubernetes, as keywatch.kubernetes stores and serves it.
 *
 *   {"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}                          stored: *plain*
 *   {"apiVersion":"v1","kind":"A","metadata":{"resourceVersion":"7","name":"a"}}    served
 *
 * A plain text begins like this, and has "resourceVersion" nowhere. Other texts, those of other writers, are served by
 * lua/keywatch/kubernetes/entry.lua.
 */
#ifndef KW_CODEC_OBJECT_TEXT_H
#define KW_CODEC_OBJECT_TEXT_H

#include "base/slice.h"

#define KW_OBJECT_TEXT_MORE 48 /* bytes by which a served text is longer, at most */

/* Returns where the members of metadata begin in a plain text; 0 if the text is not plain. O(text). */
size_t kw_object_text_head(kw_slice text);

/* Writes a plain text as it is served, to room for text.len + KW_OBJECT_TEXT_MORE bytes. `head` is from
 * kw_object_text_head. Returns the end of what was written. */
uint8_t *kw_object_text_write(kw_slice text, size_t head, int64_t revision, uint8_t *to);

#endif
