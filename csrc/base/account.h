/* SPDX-License-Identifier: MIT
 *
 * account: how much memory somebody holds, and a budget, which is what all holders together may have.
 *
 *   |<--- base, for each --->|<------ half of max: whoever comes first ------>|<-- the other half: in equal shares -->|
 *
 * Nobody is refused the base and an equal share of the second half, whatever the others hold; and while nobody takes
 * more than was asked for, all together hold no more than max and n times base.
 *
 * Charging is for what cannot be refused where it happens; whoever can refuse asks first. An account without a budget
 * only counts, and NULL does not even do that.
 */
#ifndef KW_BASE_ACCOUNT_H
#define KW_BASE_ACCOUNT_H

#include "base/common.h"

typedef struct kw_budget {
  size_t max;
  size_t base;
  size_t n;       /* accounts */
  size_t held;    /* by all of them */
  size_t refused; /* the least that somebody would have held who was refused; 0: nobody was */
} kw_budget;

typedef struct kw_account {
  kw_budget *budget;
  size_t held;
} kw_account;

static inline void kw_account_init(kw_account *account, kw_budget *budget) {
  *account = (kw_account){.budget = budget};
  if (budget != NULL) budget->n++;
}

/* What it still holds is given back. */
static inline void kw_account_drop(kw_account *account) {
  if (account->budget == NULL) return;
  account->budget->held -= account->held;
  account->budget->n--;
}

static inline void kw_account_charge(kw_account *account, size_t n) {
  if (account == NULL) return;
  account->held += n;
  if (account->budget != NULL) account->budget->held += n;
}

static inline void kw_account_credit(kw_account *account, size_t n) {
  if (account == NULL) return;
  account->held -= n;
  if (account->budget != NULL) account->budget->held -= n;
}

/* What was of one size is of another. */
static inline void kw_account_resize(kw_account *account, size_t from, size_t to) {
  kw_account_credit(account, from);
  kw_account_charge(account, to);
}

static inline size_t kw_budget_share(const kw_budget *budget) {
  return budget->base + budget->max / 2 / budget->n;
}

/* Whether all together hold more than they may. */
static inline bool kw_budget_is_over(const kw_budget *budget) {
  return budget->held > budget->max + budget->n * budget->base;
}

/* Whether `n` bytes more may be held. A refusal is noted. */
static inline bool kw_account_ask(kw_account *account, size_t n) {
  kw_budget *budget = account->budget;
  if (budget == NULL || budget->held + n <= budget->max / 2 + budget->n * budget->base) return true;
  size_t wanted = account->held + n;
  if (wanted <= kw_budget_share(budget)) return true;
  if (budget->refused == 0 || wanted < budget->refused) budget->refused = wanted;
  return false;
}

/* Whether all hold more than they may together, and this account is one of those to blame. */
static inline bool kw_account_is_over(const kw_account *account) {
  const kw_budget *budget = account->budget;
  return budget != NULL && kw_budget_is_over(budget) && account->held > kw_budget_share(budget);
}

#endif
