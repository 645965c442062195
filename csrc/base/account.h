/* SPDX-License-Identifier: MIT
 *
 * account: counts the bytes of memory that one holder has. A budget limits several accounts together.
 *
 *   |<-- base of each account -->|<-- half of max: first come, first served -->|<-- half of max: equal shares -->|
 *
 * The share of an account is its base and an equal part of the second half. An account is never refused its share,
 * however much the others hold. All accounts together should hold at most max and n times base. They may hold more,
 * since charging never fails and shares are always granted; kw_account_is_over then finds the accounts to cut.
 *
 * A holder that can refuse memory asks first, and charges what it takes. A holder that cannot refuse only charges. An
 * account without a budget only counts. Charging and crediting a NULL account does nothing; all other functions need
 * an account.
 */
#ifndef KW_BASE_ACCOUNT_H
#define KW_BASE_ACCOUNT_H

#include "base/common.h"

/* The owner sets `max` and `base`; all else is zero at the start. The owner resets `refused` to 0 when it has reacted
 * to the refusal. */
typedef struct kw_budget {
  size_t max;     /* bytes */
  size_t base;    /* bytes for each account, in addition to max */
  size_t n;       /* number of accounts */
  size_t held;    /* bytes that all accounts hold */
  size_t refused; /* the least that a refused account would have held; 0: none was refused */
} kw_budget;

typedef struct kw_account {
  kw_budget *budget; /* borrowed, or NULL */
  size_t held;       /* bytes */
} kw_account;

/* Makes an account of a budget, which must outlive the account. `budget` may be NULL: the account then only counts. */
static inline void kw_account_init(kw_account *account, kw_budget *budget) {
  *account = (kw_account){.budget = budget};
  if (budget != NULL) budget->n++;
}

/* Removes the account from its budget, and credits the budget with what the account still holds. The account must not
 * be used again before kw_account_init. */
static inline void kw_account_drop(kw_account *account) {
  if (account->budget == NULL) return;
  account->budget->held -= account->held;
  account->budget->n--;
}

/* Adds `n` bytes to what the account holds. Never fails. */
static inline void kw_account_charge(kw_account *account, size_t n) {
  if (account == NULL) return;
  account->held += n;
  if (account->budget != NULL) account->budget->held += n;
}

/* Subtracts `n` bytes, which were charged before. */
static inline void kw_account_credit(kw_account *account, size_t n) {
  if (account == NULL) return;
  account->held -= n;
  if (account->budget != NULL) account->budget->held -= n;
}

/* Charges for something that was charged with `from` bytes and has `to` bytes now. */
static inline void kw_account_resize(kw_account *account, size_t from, size_t to) {
  kw_account_credit(account, from);
  kw_account_charge(account, to);
}

/* Returns the share of each account. The budget must have an account. */
static inline size_t kw_budget_share(const kw_budget *budget) {
  return budget->base + budget->max / 2 / budget->n;
}

/* True if all accounts together hold more than max and their bases. */
static inline bool kw_budget_is_over(const kw_budget *budget) {
  return budget->held > budget->max + budget->n * budget->base;
}

/* True if the account may hold `n` bytes more. Charges nothing. A refusal is recorded in budget->refused. */
static inline bool kw_account_ask(kw_account *account, size_t n) {
  kw_budget *budget = account->budget;
  if (budget == NULL || budget->held + n <= budget->max / 2 + budget->n * budget->base) return true;
  size_t wanted = account->held + n;
  if (wanted <= kw_budget_share(budget)) return true;
  if (budget->refused == 0 || wanted < budget->refused) budget->refused = wanted;
  return false;
}

/* Returns how many more bytes kw_account_ask would let the account hold. */
static inline size_t kw_account_room(const kw_account *account) {
  const kw_budget *budget = account->budget;
  if (budget == NULL) return SIZE_MAX;
  size_t all = budget->max / 2 + budget->n * budget->base, share = kw_budget_share(budget);
  size_t of_all = all > budget->held ? all - budget->held : 0;
  size_t of_share = share > account->held ? share - account->held : 0;
  return of_all > of_share ? of_all : of_share;
}

/* True if kw_budget_is_over, and this account holds more than its share. */
static inline bool kw_account_is_over(const kw_account *account) {
  const kw_budget *budget = account->budget;
  return budget != NULL && kw_budget_is_over(budget) && account->held > kw_budget_share(budget);
}

#endif
