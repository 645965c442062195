/* SPDX-License-Identifier: MIT */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "tls/describe.h"

#define DATE_TEXT 32

/* {====== Texts ====== */

void kw_tls_fail(kw_tls_failure *failure, kw_tls_fault fault, const char *format, ...) {
  va_list arguments;
  if (failure->fault != KW_TLS_NONE) return;
  failure->fault = fault;
  va_start(arguments, format);
  vsnprintf(failure->text, sizeof failure->text, format, arguments);
  va_end(arguments);
}

/* A text of limited size that is built piece by piece. */
typedef struct text {
  char *bytes;
  size_t len;
  size_t cap;
} text;

/* Adds bytes of the other side; unprintable ones become question marks. */
static void add_foreign(text *to, const void *bytes, size_t len) {
  const uint8_t *from = bytes;
  for (size_t i = 0; i < len && to->len + 1 < to->cap; i++) {
    to->bytes[to->len++] = from[i] >= 0x20 && from[i] < 0x7f ? (char)from[i] : '?';
  }
  to->bytes[to->len] = 0;
}

static void print_name(const X509_NAME *name, char *to, size_t cap) {
  text out = {to, 0, cap};
  char *bytes;
  to[0] = 0;
  BIO *bio = BIO_new(BIO_s_mem());
  if (bio == NULL) return;
  X509_NAME_print_ex(bio, name, 0, XN_FLAG_RFC2253);
  long len = BIO_get_mem_data(bio, &bytes);
  if (len > 0) add_foreign(&out, bytes, (size_t)len);
  if (len == 0) add_foreign(&out, "(empty)", 7);
  BIO_free(bio);
}

static void print_date(const ASN1_TIME *date, char to[DATE_TEXT]) {
  struct tm tm;
  to[0] = 0;
  if (ASN1_TIME_to_tm(date, &tm) == 1) strftime(to, DATE_TEXT, "%Y-%m-%d %H:%M:%S UTC", &tm);
  if (to[0] == 0) snprintf(to, DATE_TEXT, "a malformed date");
}

static void add_general_name(text *to, const GENERAL_NAME *name) {
  char address[INET6_ADDRSTRLEN] = "";
  if (name->type == GEN_DNS) {
    add_foreign(to, ASN1_STRING_get0_data(name->d.dNSName),
                (size_t)ASN1_STRING_length(name->d.dNSName));
  } else if (name->type == GEN_IPADD) {
    int len = ASN1_STRING_length(name->d.iPAddress);
    const void *bytes = ASN1_STRING_get0_data(name->d.iPAddress);
    if (len == 4) inet_ntop(AF_INET, bytes, address, sizeof address);
    if (len == 16) inet_ntop(AF_INET6, bytes, address, sizeof address);
    add_foreign(to, address, strlen(address));
  }
}

/* Prints the names and addresses that a certificate is for. */
static void print_names(const X509 *certificate, char *bytes, size_t cap) {
  text to = {bytes, 0, cap};
  bytes[0] = 0;
  GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
  for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
    size_t before = to.len;
    if (i > 0) add_foreign(&to, ", ", 2);
    size_t between = to.len;
    add_general_name(&to, sk_GENERAL_NAME_value(names, i));
    if (to.len == between) bytes[to.len = before] = 0;
  }
  if (to.len == 0) add_foreign(&to, "no name", 7);
  GENERAL_NAMES_free(names);
}

/* }====== */

/* {====== Certificates ====== */

static int64_t seconds_of(const ASN1_TIME *date) {
  struct tm tm;
  return ASN1_TIME_to_tm(date, &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

void kw_tls_summarize(const X509 *certificate, kw_tls_summary *summary) {
  print_name(X509_get_subject_name(certificate), summary->subject, sizeof summary->subject);
  print_name(X509_get_issuer_name(certificate), summary->issuer, sizeof summary->issuer);
  print_names(certificate, summary->names, sizeof summary->names);
  summary->not_before = seconds_of(X509_get0_notBefore(certificate));
  summary->not_after = seconds_of(X509_get0_notAfter(certificate));
  ERR_clear_error();
}

bool kw_tls_is_address(const char *host) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

bool kw_tls_read_host(const char *given, size_t len, char host[KW_TLS_NAME]) {
  bool has_brackets = len > 1 && given[0] == '[' && given[len - 1] == ']';
  if (has_brackets) {
    given++;
    len -= 2;
  } else if (len > 1 && given[len - 1] == '.') {
    len--;
  }
  if (len == 0 || len >= KW_TLS_NAME || given[0] == '.' || memchr(given, 0, len) != NULL)
    return false;
  memcpy(host, given, len);
  host[len] = 0;
  return !has_brackets || kw_tls_is_address(host);
}

bool kw_tls_is_for(X509 *certificate, const char *given, size_t len) {
  char host[KW_TLS_NAME];
  unsigned flags = X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT;
  if (!kw_tls_read_host(given, len, host)) return false;
  int rc = kw_tls_is_address(host) ? X509_check_ip_asc(certificate, host, 0)
                                   : X509_check_host(certificate, host, 0, flags, NULL);
  ERR_clear_error();
  return rc == 1;
}

/* Prints the failed check. */
static void print_check(int error, const X509 *certificate, char *to, size_t cap) {
  char date[DATE_TEXT], names[KW_TLS_NAMES];
  switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      print_date(X509_get0_notAfter(certificate), date);
      snprintf(to, cap, "has expired on %s", date);
      return;
    case X509_V_ERR_CERT_NOT_YET_VALID:
      print_date(X509_get0_notBefore(certificate), date);
      snprintf(to, cap, "is not valid before %s", date);
      return;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      print_names(certificate, names, sizeof names);
      snprintf(to, cap, "is for another name: it is for %s", names);
      return;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
      snprintf(to, cap, "is self-signed, and is none of the trusted ones");
      return;
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      snprintf(to, cap, "is signed by an authority that is not trusted");
      return;
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      snprintf(to, cap, "has a signature that its authority has not made");
      return;
    case X509_V_ERR_CERT_REVOKED: snprintf(to, cap, "was revoked"); return;
    case X509_V_ERR_INVALID_PURPOSE:
      snprintf(to, cap, "is not made for this use (extended key usage)");
      return;
    default: snprintf(to, cap, "was refused: %s", X509_verify_cert_error_string(error));
  }
}

void kw_tls_fail_check(kw_tls_failure *failure, X509_STORE_CTX *store, const char *owner,
                       const char *name) {
  char check[KW_TLS_NAMES + 64], subject[KW_TLS_SUBJECT], issuer[KW_TLS_SUBJECT], until[DATE_TEXT];
  const X509 *certificate = X509_STORE_CTX_get_current_cert(store);
  int error = X509_STORE_CTX_get_error(store);
  bool is_own = X509_STORE_CTX_get_error_depth(store) == 0;
  const char *quote = name[0] == 0 ? "" : "'";
  if (certificate == NULL) {
    kw_tls_fail(failure, KW_TLS_CERTIFICATE, "the certificate of the %s was refused: %s", owner,
                X509_verify_cert_error_string(error));
    return;
  }
  print_check(error, certificate, check, sizeof check);
  print_name(X509_get_subject_name(certificate), subject, sizeof subject);
  print_name(X509_get_issuer_name(certificate), issuer, sizeof issuer);
  print_date(X509_get0_notAfter(certificate), until);
  kw_tls_fail(failure, KW_TLS_CERTIFICATE,
              "the %scertificate of the %s%s%s%s%s %s (subject %s, issuer %s, valid until %s)",
              is_own ? "" : "authority of the ", owner, name[0] == 0 ? "" : " ", quote, name, quote,
              check, subject, issuer, until);
}

/* }====== */

/* {====== OpenSSL's errors ====== */

/* Returns the meaning of an alert of the other side for this side; or NULL. */
static const char *alert_text(int alert) {
  switch (alert) {
    case SSL_AD_HANDSHAKE_FAILURE: return "no version, cipher suite or key exchange is in common";
    case SSL_AD_BAD_CERTIFICATE: return "our certificate was refused";
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
      return "our certificate is of a type that it does not support";
    case SSL_AD_CERTIFICATE_REVOKED: return "our certificate was revoked";
    case SSL_AD_CERTIFICATE_EXPIRED: return "our certificate has expired";
    case SSL_AD_CERTIFICATE_UNKNOWN: return "our certificate was refused for an unspecified reason";
    case SSL_AD_UNKNOWN_CA:
      return "our certificate is signed by an authority that it does not trust";
    case SSL_AD_ACCESS_DENIED: return "access is denied";
    case SSL_AD_PROTOCOL_VERSION: return "no TLS version is in common";
    case SSL_AD_INSUFFICIENT_SECURITY: return "our cipher suites are too weak for it";
    case SSL_AD_INTERNAL_ERROR: return "it has an internal error";
    case SSL_AD_USER_CANCELLED: return "it has cancelled the handshake";
    case SSL_AD_UNRECOGNIZED_NAME: return "it does not serve the name that we asked for";
    case TLS13_AD_CERTIFICATE_REQUIRED: return "it wants a certificate from us";
    case SSL_AD_NO_APPLICATION_PROTOCOL: return "it does not speak HTTP/2";
    default: return NULL;
  }
}

static void fail_alert(kw_tls_failure *failure, const char *other, int alert) {
  const char *what = alert_text(alert);
  if (what == NULL) what = SSL_alert_desc_string_long(alert);
  kw_tls_fail(failure, KW_TLS_ALERT, "the %s has refused the connection: %s (alert %d)", other,
              what, alert);
}

/* Returns the error in the bytes of the other side, as the end of a sentence whose subject is the other side. NULL: use
 * OpenSSL's text. */
static const char *reason_text(int reason) {
  switch (reason) {
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_WRONG_SSL_VERSION:
    case SSL_R_VERSION_TOO_LOW:
    case SSL_R_VERSION_TOO_HIGH: return "has no TLS version in common with us";
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_CIPHERS_AVAILABLE: return "has no cipher suite in common with us";
    case SSL_R_NO_SHARED_GROUPS:
    case SSL_R_NO_SUITABLE_KEY_SHARE: return "has no key exchange in common with us";
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE: return "has sent no certificate";
    case SSL_R_NO_APPLICATION_PROTOCOL:
    case SSL_R_CALLBACK_FAILED: return "offers neither HTTP/2 nor HTTP/1.1 (ALPN)";
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST: return "does not speak TLS";
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC: return "has sent a record that was altered";
    case SSL_R_EXCESSIVE_MESSAGE_SIZE:
      return "has sent a handshake message that is too large, for example more than 64 KB of "
             "certificates";
    default: return NULL;
  }
}

static void fail_reason(kw_tls_failure *failure, const char *other, unsigned long error) {
  const char *known = reason_text(ERR_GET_REASON(error));
  if (known != NULL) {
    kw_tls_fail(failure, KW_TLS_PROTOCOL, "the %s %s", other, known);
    return;
  }
  const char *reason = ERR_reason_error_string(error);
  kw_tls_fail(failure, KW_TLS_PROTOCOL, "the %s has broken the protocol: %s", other,
              reason == NULL ? "an unknown TLS error" : reason);
}

void kw_tls_fail_queue(kw_tls_failure *failure, const char *other) {
  unsigned long error = ERR_peek_error();
  int reason = ERR_GET_REASON(error);
  if (error == 0) {
    kw_tls_fail(failure, KW_TLS_PROTOCOL, "TLS with the %s has failed for an unknown reason",
                other);
  } else if (reason == ERR_R_MALLOC_FAILURE) {
    kw_tls_fail(failure, KW_TLS_MEMORY, "not enough memory");
  } else if (ERR_GET_LIB(error) != ERR_LIB_SSL) {
    fail_reason(failure, other, ERR_peek_last_error());
  } else if (reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    kw_tls_fail(failure, KW_TLS_CUT, "the %s has closed the connection without close_notify",
                other);
  } else if (reason > SSL_AD_REASON_OFFSET && reason < SSL_AD_REASON_OFFSET + 256) {
    fail_alert(failure, other, reason - SSL_AD_REASON_OFFSET);
  } else {
    fail_reason(failure, other, error);
  }
  ERR_clear_error();
}

void kw_tls_fail_reason(kw_tls_failure *failure, kw_tls_fault fault, const char *what) {
  unsigned long error = ERR_peek_last_error();
  const char *reason = error == 0 ? NULL : ERR_reason_error_string(error);
  kw_tls_fail(failure, fault, "%s%s%s", what, reason == NULL ? "" : ": ",
              reason == NULL ? "" : reason);
  ERR_clear_error();
}

/* }====== */
