-- fits returns how many of count requests for n each fit, one after the other. Below 2^53
-- no quotient is rounded up to a whole number.
local function fits(l, n, count)
  return math.max(0, math.min(count, math.floor((l.room - l.taken) / n)))
end

-- read_all returns the limits of KEYS[k+1] and on, where their arguments end and how many
-- they are; and if one could not be read, what to reply.
--
-- ARGV[a…]  for each limit: its kind, and what its read wants
local function read_all(k, a)
  local limits, n, no = {}, 0, nil
  while kinds[ARGV[a]] do
    local kind, l = kinds[ARGV[a]], nil
    n = n + 1
    if not no then l, no = kind.read(k + n, a + 1) end
    if l then l.of, limits[n] = kind, l end
    a = a + 1 + kind.args
  end
  return limits, a, n, no
end
