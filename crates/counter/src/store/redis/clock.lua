-- The time is Redis' own, read inside the script: gateways and services may disagree about it, one slot may not.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
