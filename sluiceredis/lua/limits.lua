-- What scripts know of each kind of limit: how many arguments its read takes, what of it
-- is replied, so that a decision can be computed again, and its functions. Only a
-- sliding window must be asked when more will fit.
local kinds = {}

-- read_all returns all limits of KEYS, and where their arguments end, or nil and
-- what to reply.
--
-- ARGV  for each limit: its kind, and what its read wants
local function read_all()
  local n, a = 0, 1
  while kinds[ARGV[a]] do n, a = n + 1, a + 1 + kinds[ARGV[a]].args end
  local stop = epoch(n + 1)
  if stop then return nil, stop end
  local limits = {}
  a = 1
  for i = 1, n do
    local kind = kinds[ARGV[a]]
    local l, no = kind.read(i, a + 1)
    if no then return nil, no end
    l.kind, l.of = ARGV[a], kind
    limits[i], a = l, a + 1 + kind.args
  end
  return limits, a
end
