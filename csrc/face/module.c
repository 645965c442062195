/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "face/module.h"

void kw_pin(void *symbol) {
  Dl_info info;
  if (dladdr(symbol, &info) == 0) return;
  dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}
