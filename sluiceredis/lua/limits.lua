-- kinds has the rules of each kind of limit: how many arguments its read takes, what it
-- found that is replied, so that a decision can be computed again, and its functions.
-- What read returns has the room that is left and how much of it was taken. Only for a
-- sliding window is it asked when more will fit.
local kinds = {}

-- fits returns how many of count requests for n each fit, one after the other. Below 2^53
-- no quotient is rounded up to a whole number.
local function fits(l, n, count)
  return math.max(0, math.min(count, math.floor((l.room - l.taken) / n)))
end

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
    l.of, limits[i], a = kind, l, a + 1 + kind.args
  end
  return limits, a
end
