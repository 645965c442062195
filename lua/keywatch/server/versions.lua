-- SPDX-License-Identifier: MIT
--- versions: the versions of etcd that are reported to clients.

return {
  server = "3.5.21",
  cluster = "3.5",
  storage = "3.5.0", -- of the data format that snapshots have; also what GET /version reports for the cluster
}
