-- SPDX-License-Identifier: MIT
--- alarm_names: etcd's names of alarms, by their names in the store.

return { no_space = "NOSPACE", corrupt = "CORRUPT" }
