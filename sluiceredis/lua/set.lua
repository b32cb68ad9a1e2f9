-- take_set decides the set whose keys are KEYS[k+1] and on and whose arguments are
-- ARGV[a] and on, see take, and appends to reply. It returns where the keys and the
-- arguments of the next one begin, or nil and an error of the server.
local function take_set(k, a, reply)
  local limits, runs, n, no = read_all(k, a)
  local last, at = runs + ARGV[runs] * (n + 1), #reply + 1
  if no then
    reply[at], reply[at + 1], reply[at + 2] = 2, no[1], no[3] and no[3] - k
    return not no.err and k + n, no.err and no or last + 1
  end
  reply[at], reply[at + 1] = 0, 0
  for _, l in ipairs(limits) do
    for _, what in ipairs(l.of.found) do reply[#reply + 1] = l[what] end
  end
  for run = runs + 1, last, n + 1 do
    local fit = tonumber(ARGV[run])
    for i, l in ipairs(limits) do
      local takes = tonumber(ARGV[run + i])
      if takes > 0 then fit = (l.of.fits or fits)(l, takes, fit) end
    end
    reply[at + 1] = reply[at + 1] + fit
    for i, l in ipairs(limits) do
      local takes = tonumber(ARGV[run + i])
      l.taken = l.taken + fit * takes
      if l.of.when then reply[#reply + 1] = takes > 0 and l.of.when(l, takes) or 0 end
    end
  end
  for _, l in ipairs(limits) do l.of.write(l, last > runs) end
  reply[at] = #reply - at
  return k + n, last + 1
end
