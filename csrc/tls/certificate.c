/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_CLOEXEC */
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#pragma GCC visibility push(default)
#include <openssl/rand.h>
#pragma GCC visibility pop

#include "tls/certificate.h"

#include "base/directory.h"

#define SERIAL 16     /* bytes of the serial number */
#define SLACK_S 300   /* clocks of clients may be slow */
#define YEAR_DAYS 365 /* as etcd counts */
#define HOST_TEXT 254 /* bytes of a host, with the 0 at its end */

/* {====== Parts of a certificate ====== */

static bool set_serial(X509 *certificate) {
  unsigned char bytes[SERIAL];
  if (RAND_bytes_ex(kw_tls_library(), bytes, sizeof bytes, 0) != 1) return false;
  bytes[0] &= 0x7f; /* not negative... */
  bytes[0] |= 0x40; /* ...and not 0 */
  BIGNUM *number = BN_bin2bn(bytes, sizeof bytes, NULL);
  bool ok =
      number != NULL && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != NULL;
  BN_free(number);
  return ok;
}

static bool set_subject(X509 *certificate) {
  X509_NAME *name = X509_get_subject_name(certificate);
  return X509_NAME_add_entry_by_txt(name, "O", MBSTRING_ASC, (const unsigned char *)"keywatch", -1,
                                    -1, 0) == 1 &&
         X509_set_issuer_name(certificate, name) == 1;
}

static bool set_validity(X509 *certificate, int64_t years) {
  return X509_gmtime_adj(X509_getm_notBefore(certificate), -SLACK_S) != NULL &&
         X509_time_adj_ex(X509_getm_notAfter(certificate), (int)(years * YEAR_DAYS), 0, NULL) !=
             NULL;
}

/* Adds an extension whose value is a constant text. */
static bool add_extension(X509 *certificate, int nid, const char *value) {
  X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
  bool ok = extension != NULL && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return ok;
}

/* Makes a name from a host name or an address. Returns NULL if `host` is neither. */
static GENERAL_NAME *new_name(const char *host) {
  ASN1_OCTET_STRING *address = a2i_IPADDRESS(host);
  GENERAL_NAME *name = GENERAL_NAME_new();
  ASN1_IA5STRING *text = address == NULL ? ASN1_IA5STRING_new() : NULL;
  bool ok = name != NULL && (address != NULL || text != NULL);
  if (ok && address == NULL) ok = ASN1_STRING_set(text, host, -1) == 1;
  if (ok) {
    GENERAL_NAME_set0_value(name, address != NULL ? GEN_IPADD : GEN_DNS,
                            address != NULL ? (void *)address : (void *)text);
    return name;
  }
  GENERAL_NAME_free(name);
  ASN1_OCTET_STRING_free(address);
  ASN1_IA5STRING_free(text);
  return NULL;
}

static bool is_host(const char *host) {
  return host[0] != 0 && strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                      "0123456789-._:*") == strlen(host);
}

static bool add_host(GENERAL_NAMES *names, kw_slice slice, kw_tls_failure *failure) {
  char host[HOST_TEXT] = "";
  if (slice.len < sizeof host) memcpy(host, slice.data, slice.len);
  if (!is_host(host)) {
    kw_tls_fail(failure, KW_TLS_OPTION, "'%.*s' is not a host name or an IP address",
                (int)kw_min_size(slice.len, HOST_TEXT), (const char *)slice.data);
    return false;
  }
  GENERAL_NAME *name = new_name(host);
  if (name != NULL && sk_GENERAL_NAME_push(names, name) > 0) return true;
  GENERAL_NAME_free(name);
  return false;
}

static bool add_hosts(X509 *certificate, kw_slice hosts, kw_tls_failure *failure) {
  GENERAL_NAMES *names = GENERAL_NAMES_new();
  bool ok = names != NULL;
  for (size_t from = 0; ok && from <= hosts.len;) {
    const uint8_t *comma =
        from == hosts.len ? NULL : memchr(hosts.data + from, ',', hosts.len - from);
    size_t to = comma == NULL ? hosts.len : (size_t)(comma - hosts.data);
    ok = add_host(names, kw_slice_of(hosts.data + from, to - from), failure);
    from = to + 1;
  }
  ok = ok && X509_add1_ext_i2d(certificate, NID_subject_alt_name, names, 0, 0) == 1;
  GENERAL_NAMES_free(names);
  return ok;
}

/* }====== */

static X509 *make_certificate(EVP_PKEY *key, kw_slice hosts, int64_t years,
                              kw_tls_failure *failure) {
  X509 *certificate = X509_new_ex(kw_tls_library(), NULL);
  EVP_MD *digest = EVP_MD_fetch(kw_tls_library(), "SHA256", NULL);
  bool ok = certificate != NULL && digest != NULL && X509_set_version(certificate, 2) == 1 &&
            set_serial(certificate) && set_subject(certificate) &&
            set_validity(certificate, years) && X509_set_pubkey(certificate, key) == 1 &&
            add_extension(certificate, NID_basic_constraints, "critical,CA:FALSE") &&
            add_extension(certificate, NID_key_usage, "critical,digitalSignature") &&
            add_extension(certificate, NID_ext_key_usage, "serverAuth,clientAuth") &&
            add_hosts(certificate, hosts, failure) && X509_sign(certificate, key, digest) > 0;
  EVP_MD_free(digest);
  if (ok) return certificate;
  X509_free(certificate);
  return NULL;
}

static bool print_pair(kw_tls_pair *pair, X509 *certificate, EVP_PKEY *key) {
  pair->certificate = BIO_new(BIO_s_mem());
  pair->key = BIO_new(BIO_s_secmem());
  return pair->certificate != NULL && pair->key != NULL &&
         PEM_write_bio_X509(pair->certificate, certificate) == 1 &&
         PEM_write_bio_PrivateKey(pair->key, key, NULL, NULL, 0, NULL, NULL) == 1;
}

bool kw_tls_check_years(double years, kw_tls_failure *failure) {
  if (years >= 1 && years <= KW_TLS_MAX_YEARS && years == (int64_t)years) return true;
  kw_tls_fail(failure, KW_TLS_OPTION,
              "option 'tls.validity_years' must be a whole number from 1 to %d", KW_TLS_MAX_YEARS);
  return false;
}

static bool make_pair(kw_tls_pair *pair, kw_slice hosts, double years, kw_tls_failure *failure) {
  if (!kw_tls_check_years(years, failure)) return false;
  ERR_clear_error();
  OSSL_LIB_CTX *library = kw_tls_library();
  EVP_PKEY *key = library == NULL ? NULL : EVP_PKEY_Q_keygen(library, NULL, "EC", "P-256");
  X509 *certificate = key == NULL ? NULL : make_certificate(key, hosts, (int64_t)years, failure);
  bool ok = certificate != NULL && print_pair(pair, certificate, key);
  X509_free(certificate);
  EVP_PKEY_free(key);
  if (!ok) kw_tls_fail_reason(failure, KW_TLS_FILE, "a certificate cannot be made");
  if (!ok) kw_tls_pair_drop(pair);
  ERR_clear_error();
  return ok;
}

bool kw_tls_pair_init(kw_tls_pair *pair, kw_slice hosts, double years, kw_tls_failure *failure) {
  *pair = (kw_tls_pair){NULL, NULL};
  if (!kw_tls_enter()) {
    kw_tls_fail_ending(failure);
    return false;
  }
  bool ok = make_pair(pair, hosts, years, failure);
  kw_tls_leave();
  return ok;
}

/* During exit nothing is freed. */
void kw_tls_pair_drop(kw_tls_pair *pair) {
  kw_tls_pair dropped = *pair;
  *pair = (kw_tls_pair){NULL, NULL};
  if (!kw_tls_enter()) return;
  ERR_set_mark();
  BIO_free(dropped.certificate);
  BIO_free(dropped.key);
  ERR_pop_to_mark();
  kw_tls_leave();
}

/* {====== Files ====== */

/* Writes everything to a new file. Returns 0 or an errno. */
static int write_new(const char *path, const char *bytes, size_t len, mode_t mode) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0) return errno;
  int error = fchmod(fd, mode) < 0 ? errno : 0;
  while (error == 0 && len > 0) {
    ssize_t n = write(fd, bytes, len);
    if (n < 0 && errno != EINTR) error = errno;
    if (n > 0) {
      bytes += n;
      len -= (size_t)n;
    }
  }
  if (error == 0 && fsync(fd) < 0) error = errno;
  if (close(fd) < 0 && error == 0) error = errno;
  return error;
}

/* First removes an incomplete file of the same name that an earlier process has left. */
static bool replace(const char *path, BIO *from, mode_t mode, kw_tls_failure *failure) {
  char new_path[PATH_MAX], text[128] = "";
  char *bytes;
  size_t len = (size_t)BIO_get_mem_data(from, &bytes);
  int error = ENAMETOOLONG;
  int n = snprintf(new_path, sizeof new_path, "%s.new", path);
  if (n > 0 && (size_t)n < sizeof new_path) {
    unlink(new_path);
    error = write_new(new_path, bytes, len, mode);
    if (error == 0 && rename(new_path, path) < 0) error = errno;
    if (error != 0 && error != EEXIST) unlink(new_path);
  }
  if (error == 0) return true;
  kw_tls_fail(failure, KW_TLS_FILE, "the file '%.300s' cannot be written: %s", path,
              strerror_r(error, text, sizeof text));
  return false;
}

static bool fail_directory(const char *path, int error, kw_tls_failure *failure) {
  char text[128] = "";
  if (error == 0) return true;
  kw_tls_fail(failure, KW_TLS_FILE, "the directory '%.300s' cannot be used: %s", path,
              strerror_r(error, text, sizeof text));
  return false;
}

bool kw_tls_pair_write(const kw_tls_pair *pair, const char *directory, kw_tls_failure *failure) {
  char certificate[KW_NAME_ROOM], key[KW_NAME_ROOM];
  if (strlen(directory) >= KW_DIRECTORY_ROOM - sizeof "/cert.pem")
    return fail_directory("", ENAMETOOLONG, failure);
  kw_directory_name(directory, "cert.pem", certificate);
  kw_directory_name(directory, "key.pem", key);
  return fail_directory(directory, kw_directory_make_parents(certificate), failure) &&
         replace(key, pair->key, 0600, failure) &&
         replace(certificate, pair->certificate, 0644, failure) &&
         fail_directory(directory, kw_directory_sync(directory), failure);
}

/* }====== */
