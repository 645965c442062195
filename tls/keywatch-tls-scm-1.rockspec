rockspec_format = "3.0"
package = "keywatch-tls"
version = "scm-1"

source = {
  url = "git+https://github.com/keywatch/keywatch.git",
}

description = {
  summary = "TLS for keywatch",
  detailed = [[
    keywatch speaks TLS with this rock: https:// endpoints of clients, and servers with certificates. It is a rock of
    its own, since it needs OpenSSL 3, which keywatch does not.
  ]],
  homepage = "https://github.com/keywatch/keywatch",
  license = "MIT",
  labels = { "etcd", "tls" },
}

dependencies = {
  "lua >= 5.1, < 5.5",
  "keywatch == scm-1",
}

external_dependencies = {
  CRYPTO = { header = "openssl/crypto.h", library = "crypto" },
  OPENSSL = { header = "openssl/ssl.h", library = "ssl" },
}

build = {
  type = "builtin",
  modules = {
    ["keywatch.tls"] = {
      sources = {
        "csrc/base/directory.c",
        "csrc/base/mem.c",
        "csrc/face/module.c",
        "csrc/tls/buffer.c",
        "csrc/tls/certificate.c",
        "csrc/tls/channel.c",
        "csrc/tls/context.c",
        "csrc/tls/describe.c",
        "csrc/tls/library.c",
        "csrc/tls/lua_channel.c",
        "csrc/tls/lua_context.c",
        "csrc/tls/lua_options.c",
        "csrc/tls/lua_pair.c",
        "csrc/tls/plain.c",
        "csrc/tls/pem.c",
        "csrc/tls/suites.c",
        "csrc/tls/tls.c",
      },
      incdirs = { "csrc", "$(OPENSSL_INCDIR)", "$(CRYPTO_INCDIR)" },
      libdirs = { "$(OPENSSL_LIBDIR)", "$(CRYPTO_LIBDIR)" },
      libraries = { "ssl", "crypto", "pthread" },
    },
  },
}
